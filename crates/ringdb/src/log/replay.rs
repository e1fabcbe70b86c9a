//! Replay: what the log holds after a crash, and whether its end is a torn tail or damage.
//!
//! Replay follows frames, and links from segment to segment, until the first place where no frame is believed.
//! That is the normal end of a log, torn or not, unless something found *behind* it proves that the place had
//! been durable: a frame header whose durable position lies beyond it, or a missing file whose name had been
//! durable; or the manifest, which says of each segment that it came into use; or a segment's file that is shorter than
//! it was, or has another one's name. Then it is damage. Nothing behind the first such place is ever replayed.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::{File, Io, OpenHow};

use super::frame::{
    FIRST_FRAME, FrameHeader, FrameKind, HEADER_BYTES, Link, LogPos, MAX_PAYLOAD_BYTES, MIN_ALIGN, PACKED,
};
use super::segment::{HeaderState, SEGMENT_HEADER_BYTES, SegmentHeader, decode_header, segment_path};
use super::window::Window;
use crate::coding::crc32c;
use crate::error::{Error, Result};
use crate::key::Seq;
use crate::mutation::{Mutation, broken};
use crate::purpose::RECOVERY;
use crate::seal::{Seal, Unit, ring};

/// Where replay begins and what it does about damage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayFrom {
    /// The log's first segment by the manifest; older ones are ignored.
    pub first_segment: u64,
    /// Frames whose first sequence number is this or lower are in tables already: they are skipped.
    pub flushed_seq: Seq,
    /// Report damage in [`ReplayEnd::lost`] instead of failing.
    pub recover_damaged: bool,
    /// Where the manifest says that the log was durable up to; a position in older segments says nothing.
    pub durable: LogPos,
}

/// How a replay ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayEnd {
    /// Behind the last frame; the default if there was none.
    pub end: LogPos,
    /// Frames given to the sink.
    pub frames: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// The first sequence number of the last frame, skipped ones included; 0 if there was none.
    pub last_first_seq: Seq,
    /// What was given up, with [`ReplayFrom::recover_damaged`].
    pub lost: Option<Lost>,
    /// Where the log breaks off although frames follow, and nothing says that they had been durable: what a
    /// power cut may leave of writes that were never synced, and what damage to them looks like.
    pub broken: Option<Lost>,
}

/// Damage that replay stopped at.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub path: PathBuf,
    pub offset: u64,
    pub detail: String,
}

/// Gives every frame of `segments` (numbers, in any order) that follows `from` to `sink`, oldest first, with
/// its first sequence number. Fails with [`Error::Corrupt`] where durable bytes are damaged; `sink` has then
/// seen what precedes the damage.
pub(crate) fn replay(
    io: &Io,
    dir: &Path,
    segments: &[u64],
    from: &ReplayFrom,
    sink: &mut dyn FnMut(Seq, &[u8]) -> Result<()>,
) -> Result<ReplayEnd> {
    let mut numbers: Vec<u64> = segments.iter().copied().filter(|&n| n >= from.first_segment).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut walk = Walk { from, sink, end: ReplayEnd::default(), stop: None };
    let mut readable = vec![];
    let mut misnamed = vec![];
    for number in numbers {
        let mut segment = match Reading::open(io, segment_path(dir, number), number)? {
            Opened::Segment(segment) => segment,
            Opened::Of(segment) => {
                misnamed.push((number, segment));
                continue;
            }
            Opened::Gone => continue,
        };
        if walk.stop.is_none() {
            walk.segment(&mut segment)?;
        }
        segment.window = Window::default();
        readable.push(segment);
    }
    let Walk { mut end, stop, .. } = walk;
    let stop = stop.unwrap_or_else(|| {
        // Without a frame the log stops where it begins: what was durable before that is no proof of anything.
        let begin = LogPos { segment: from.first_segment, offset: FIRST_FRAME };
        Stop { at: end.end.max(begin), proof: None }
    });
    // A file under another one's name may still be on its way to its own, but it is there.
    let is_there =
        |n: u64| readable.iter().any(|s| s.number == n) || misnamed.iter().any(|(name, _)| *name == n);
    let vouched = from.durable.segment;
    let absent = vouched > 0 && vouched >= from.first_segment && !is_there(vouched);
    let mut proof = prove_damage(&stop, (from, absent), &mut readable)?;
    if proof.is_none() {
        proof = prove_exchange(&stop, from, &mut readable, &mut misnamed)?;
    }
    if let Some(detail) = proof {
        let path = segment_path(dir, stop.at.segment);
        if !from.recover_damaged {
            return Err(Error::corrupt(&path, Some(stop.at.offset), detail));
        }
        end.lost = Some(Lost { path, offset: stop.at.offset, detail });
    } else if let Some(behind) = frames_behind(&stop, end.last_first_seq, &mut readable)? {
        end.broken = Some(Lost {
            path: segment_path(dir, stop.at.segment.max(from.first_segment)),
            offset: stop.at.offset.max(FIRST_FRAME),
            detail: format!(
                "no valid frame here, but {behind}; they are not replayed: a power cut has taken unsynced \
                 writes, or the log is damaged"
            ),
        });
    }
    Ok(end)
}

/// Goes on where a replay, or another call of this, has ended (`so_far`: its end and the sequence number of its last
/// frame): gives `sink` the frames that have come since, and says where they end now. Looks for no damage; `None` if it
/// has met what only [`replay`] can judge.
pub(crate) fn follow(
    io: &Io,
    dir: &Path,
    segments: &[u64],
    from: &ReplayFrom,
    so_far: (LogPos, Seq),
    sink: &mut dyn FnMut(Seq, &[u8]) -> Result<()>,
) -> Result<Option<(LogPos, Seq)>> {
    let (end, last_first_seq) = so_far;
    let first = from.first_segment.max(end.segment);
    let mut numbers: Vec<u64> = segments.iter().copied().filter(|&n| n >= first).collect();
    numbers.sort_unstable();
    let end_so_far = ReplayEnd { end, last_first_seq, ..ReplayEnd::default() };
    let mut walk = Walk { from, sink, end: end_so_far, stop: None };
    for number in numbers {
        let Opened::Segment(mut s) = Reading::open(io, segment_path(dir, number), number)? else { continue };
        let here = number == end.segment;
        // Mostly there is nothing new: a look at the next header costs less than a window.
        if s.has_header(if here { end.offset } else { FIRST_FRAME })? {
            if here { walk.frames(&mut s, end.offset)? } else { walk.segment(&mut s)? }
        }
        match walk.stop {
            // What is missing may be on its way.
            Some(Stop { proof: None, .. }) => break,
            Some(_) => return Ok(None),
            None => {}
        }
    }
    let begin = LogPos { segment: from.first_segment, offset: FIRST_FRAME };
    let at = (walk.end.end, walk.end.last_first_seq);
    // What was durable and is not there is damage.
    Ok((from.durable <= at.0.max(begin)).then_some(at))
}

/// Where no frame was believed.
struct Stop {
    at: LogPos,
    /// Why this is damage, if that is known already.
    proof: Option<String>,
}

struct Walk<'a> {
    from: &'a ReplayFrom,
    sink: &'a mut dyn FnMut(Seq, &[u8]) -> Result<()>,
    end: ReplayEnd,
    stop: Option<Stop>,
}

impl Walk<'_> {
    /// Replays a segment if it continues the log; sets `stop` if something is missing before it. A segment
    /// without a link is passed over: it was prepared and not used, or it is damaged, which the next link tells.
    fn segment(&mut self, s: &mut Reading) -> Result<()> {
        let Some((link, first)) = s.link()? else { return Ok(()) };
        let reached = self.end.end;
        let expected = if reached == LogPos::default() {
            // The first segment of the log; its predecessor has been released, or there was none.
            link.prev.segment < self.from.first_segment || link.prev == LogPos::default()
        } else {
            link.prev == reached
        };
        if expected {
            return self.frames(s, first);
        }
        let (at, what) = if link.prev.segment == reached.segment {
            (reached, "frames are missing before the end of the segment")
        } else {
            (
                LogPos { segment: link.prev.segment, offset: FIRST_FRAME },
                "the segment is missing or unreadable",
            )
        };
        if link.prev < reached {
            let detail = format!("the segment follows {:?}, but the log goes on to {reached:?}", link.prev);
            self.stop =
                Some(Stop { at: LogPos { segment: s.number, offset: FIRST_FRAME }, proof: Some(detail) });
            return Ok(());
        }
        // Whether a whole file may be missing after a power cut depends on whether its name was durable.
        let missing = at.segment != reached.segment && !s.exists_beside(at.segment)?;
        let proof =
            (missing && link.prev_named).then(|| format!("{what}; {} continues it", segment_name(&s.path)));
        self.stop = Some(Stop { at, proof });
        Ok(())
    }

    /// Replays the frames from `offset` on.
    fn frames(&mut self, s: &mut Reading, mut offset: u64) -> Result<()> {
        self.end.end = LogPos { segment: s.number, offset };
        loop {
            let mut next = s.frame(offset)?;
            while broken(Mutation::ReplayOverGap) && next.is_none() && offset < s.len {
                offset += MIN_ALIGN;
                next = s.frame(offset)?;
            }
            let Some(h) = next else { break };
            if !h.kind.is_batch() {
                break;
            }
            if h.kind == FrameKind::Batch && s.header.is_some_and(|h| h.stamp.is_some()) {
                let detail = "a frame that is not encrypted, in a segment that is".into();
                self.stop = Some(Stop { at: LogPos { segment: s.number, offset }, proof: Some(detail) });
                return Ok(());
            }
            if h.first_seq <= self.end.last_first_seq {
                let detail = format!(
                    "a frame of sequence number {} follows one of {}",
                    h.first_seq, self.end.last_first_seq
                );
                self.stop = Some(Stop { at: LogPos { segment: s.number, offset }, proof: Some(detail) });
                return Ok(());
            }
            self.end.last_first_seq = h.first_seq;
            if h.first_seq > self.from.flushed_seq {
                (self.sink)(h.first_seq, &s.batch(offset, &h)?)?;
                self.end.frames += 1;
                self.end.bytes += h.payload_len as u64;
            }
            offset = h.next_offset(offset);
            self.end.end.offset = offset;
        }
        Ok(())
    }
}

/// Looks for a proof that the place of a stop, or something behind it, had been durable.
fn prove_damage(
    stop: &Stop,
    (from, absent): (&ReplayFrom, bool),
    segments: &mut [Reading],
) -> Result<Option<String>> {
    if stop.proof.is_some() {
        return Ok(stop.proof.clone());
    }
    let LogPos { segment, offset } = from.durable;
    if from.durable > stop.at {
        return Ok(Some(format!(
            "the log ends here, but the manifest says that it was durable up to segment {segment}, offset {offset}"
        )));
    }
    if absent {
        return Ok(Some(format!("segment {segment} is missing, which the manifest says was there")));
    }
    if let Some(proof) = prove_cut(stop, segments)? {
        return Ok(Some(proof));
    }
    let mut proof = None;
    'search: for s in segments.iter_mut().filter(|s| s.number >= stop.at.segment) {
        let (number, name) = (s.number, segment_name(&s.path));
        let mut offset = if s.number == stop.at.segment { stop.at.offset } else { FIRST_FRAME };
        offset = offset.next_multiple_of(MIN_ALIGN);
        while let Some(window) = s.window(offset, HEADER_BYTES)? {
            let end = offset + window.len() as u64;
            while offset + HEADER_BYTES as u64 <= end {
                let at = window.len() - (end - offset) as usize;
                let bytes = window.get(at..).unwrap_or_default();
                if let Some(h) = FrameHeader::decode(bytes, number, offset)
                    && h.durable > stop.at
                {
                    proof = Some(format!(
                        "no valid frame here, but {name} says at offset {offset} that this was durable"
                    ));
                    break 'search;
                }
                offset += MIN_ALIGN;
            }
        }
        s.window = Window::default();
    }
    // Beside a writer the log may just have grown. What a frame says of this place holds since before that frame was
    // written, so if it holds at all, it does now.
    Ok(if proof.is_some() && goes_on(stop, segments)? { None } else { proof })
}

/// A file, behind the stop or around it, that is shorter than it has been durably.
fn prove_cut(stop: &Stop, segments: &mut [Reading]) -> Result<Option<String>> {
    for s in segments.iter_mut().filter(|s| s.number >= stop.at.segment) {
        let Some(header) = s.header.filter(|h| s.file_len < h.size) else { continue };
        // A frame proves nothing of the length: a durable write reaches to its own end.
        if header.settled {
            let (name, len, size) = (segment_name(&s.path), s.file_len, header.size);
            return Ok(Some(format!("{name} has been cut off: it has {len} bytes and had {size}")));
        }
    }
    Ok(None)
}

/// A segment that is not there under its own name but, whole with its header and its link, under another one's. Files
/// from the log's first segment on keep their names until they are given up.
fn prove_exchange(
    stop: &Stop,
    from: &ReplayFrom,
    segments: &mut [Reading],
    misnamed: &mut [(u64, Reading)],
) -> Result<Option<String>> {
    for (name, s) in misnamed {
        let missing = s.number >= from.first_segment
            && s.number >= stop.at.segment
            && match segments.iter_mut().find(|own| own.number == s.number) {
                Some(own) => own.link()?.is_none(),
                None => true,
            };
        if missing && s.link()?.is_some() && !goes_on(stop, segments)? {
            let (real, path) = (s.number, segment_name(&s.path));
            return Ok(Some(format!(
                "{path} holds segment {real} of the log, not {name}: files have been exchanged or renamed"
            )));
        }
    }
    Ok(None)
}

/// Whether the log goes on where nothing followed a moment ago: in the segment of the stop, or in one that
/// continues it.
fn goes_on(stop: &Stop, segments: &mut [Reading]) -> Result<bool> {
    for s in segments.iter_mut().filter(|s| s.number >= stop.at.segment) {
        s.window = Window::default();
        let follows = match s.number == stop.at.segment {
            true => s.frame(stop.at.offset)?.is_some(),
            false => s.link()?.is_some_and(|(link, _)| link.prev == stop.at),
        };
        s.window = Window::default();
        if follows {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A mapped frame behind the stop, in words. Mapped frames are whole in the order of their places, so a process
/// that dies leaves none behind a gap; direct ones are written in any order.
fn frames_behind(stop: &Stop, last_first_seq: Seq, segments: &mut [Reading]) -> Result<Option<String>> {
    for i in 0..segments.len() {
        let Some(s) = segments.get_mut(i).filter(|s| s.number >= stop.at.segment) else { continue };
        let (number, name) = (s.number, segment_name(&s.path));
        let here = number == stop.at.segment;
        let mut offset = if here { stop.at.offset.max(FIRST_FRAME) } else { FIRST_FRAME };
        offset = (offset + if here { MIN_ALIGN } else { 0 }).next_multiple_of(MIN_ALIGN);
        while let Some(window) = s.window(offset, HEADER_BYTES)? {
            let found =
                window.windows(HEADER_BYTES).step_by(MIN_ALIGN as usize).enumerate().find_map(|(i, b)| {
                    let at = offset + i as u64 * MIN_ALIGN;
                    let h = FrameHeader::decode(b, number, at)?;
                    let follows = h.kind.is_batch() && h.align == PACKED && h.first_seq > last_first_seq;
                    follows.then_some((at, h.first_seq))
                });
            let len = window.len() as u64;
            if let Some((at, seq)) = found {
                s.window = Window::default();
                let words = format!("frames follow from {name} at offset {at} on, sequence number {seq}");
                // A writer at work may have come here only now; what precedes is whole then.
                return Ok((!goes_on(stop, segments)?).then_some(words));
            }
            offset += (len - HEADER_BYTES as u64) / MIN_ALIGN * MIN_ALIGN + MIN_ALIGN;
        }
        s.window = Window::default();
    }
    Ok(None)
}

/// Gives every whole frame of `segments` whose first sequence number is above `after` to `sink`, wherever it lies:
/// what follows a gap that [`replay`] has ended at. What cannot be read is passed over.
pub(crate) fn frames_behind_gap(
    io: &Io,
    dir: &Path,
    segments: &[u64],
    after: Seq,
    sink: &mut dyn FnMut(Seq, &[u8]) -> Result<()>,
) -> Result<()> {
    const UNIT: u64 = 4096;
    for &number in segments {
        let Ok(Opened::Segment(mut s)) = Reading::open(io, segment_path(dir, number), number) else {
            continue;
        };
        let mut offset = FIRST_FRAME;
        while offset < s.len {
            match s.frame(offset) {
                Ok(Some(h)) => {
                    if h.kind.is_batch() && h.first_seq > after {
                        match s.batch(offset, &h) {
                            Ok(payload) => sink(h.first_seq, &payload)?,
                            Err(Error::Corrupt { .. }) => {}
                            Err(e) => return Err(e),
                        }
                    }
                    offset = h.next_offset(offset);
                }
                Ok(None) => offset += MIN_ALIGN,
                Err(_) => {
                    s.window = Window::default();
                    offset = (offset / UNIT + 1) * UNIT;
                }
            }
        }
    }
    Ok(())
}

fn segment_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A segment being read, a window at a time: a file of any size costs no more memory than its largest frame.
struct Reading {
    io: Io,
    file: File,
    path: PathBuf,
    number: u64,
    header: Option<SegmentHeader>,
    /// Bytes of the file, and those of them that can be the segment's.
    file_len: u64,
    len: u64,
    window: Window,
    /// What its batches are sealed with, once that was asked.
    seal: Option<Arc<Seal>>,
}

/// What is behind a segment's name.
enum Opened {
    Gone,
    Segment(Reading),
    /// The header is another segment's: that one's file was on its way to this name when the machine died, or somebody
    /// has renamed it.
    Of(Reading),
}

impl Reading {
    fn open(io: &Io, path: PathBuf, number: u64) -> Result<Opened> {
        let file = match io.open(&path, &OpenHow::read()) {
            Err(e) if e.kind() == engineswap::ErrorKind::NotFound => return Ok(Opened::Gone),
            f => f?,
        };
        // Before the length: beside a writer, a header is never ahead of it.
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let got = file.read_at(&mut bytes, 0, RECOVERY)?;
        // Frames vouch for themselves, so an unreadable header loses nothing.
        let header = match decode_header(&bytes[..got]) {
            HeaderState::Newer(found) => {
                return Err(Error::newer_format(&path, found));
            }
            HeaderState::Of(header) => Some(header),
            HeaderState::Unreadable => None,
        };
        let file_len = file.len()?;
        // No segment is larger: what lies beyond is not a log, however long the file.
        let most = header.map_or(u64::MAX, |h| h.size).min(FIRST_FRAME + MAX_PAYLOAD_BYTES + (1 << 20));
        let len = file_len.min(most);
        let real = header.map_or(number, |h| h.number);
        let s = Reading {
            io: io.clone(),
            file,
            path,
            number: real,
            header,
            file_len,
            len,
            window: Window::default(),
            seal: None,
        };
        Ok(if real == number { Opened::Segment(s) } else { Opened::Of(s) })
    }

    fn exists_beside(&self, number: u64) -> Result<bool> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        Ok(self.io.metadata(&segment_path(dir, number))?.is_some())
    }

    /// The bytes from `offset` on, at least `min` of them; `None` if the segment has fewer.
    fn window(&mut self, offset: u64, min: usize) -> Result<Option<&[u8]>> {
        if offset.saturating_add(min as u64) > self.len {
            return Ok(None);
        }
        let bytes = self.window.read(&self.file, offset, min, self.len - offset)?;
        if bytes.len() < min {
            // Cut while being read; what is gone is gone.
            self.len = offset + bytes.len() as u64;
            return Ok(None);
        }
        Ok(Some(bytes))
    }

    /// Whether a frame's header is at `offset`, whole or not behind it.
    fn has_header(&self, offset: u64) -> Result<bool> {
        let mut bytes = [0; HEADER_BYTES];
        let got = self.file.read_at(&mut bytes, offset, RECOVERY)?;
        Ok(got == HEADER_BYTES && FrameHeader::decode(&bytes, self.number, offset).is_some())
    }

    /// The whole frame at `offset` if there is one.
    fn frame(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        let number = self.number;
        let Some(bytes) = self.window(offset, HEADER_BYTES)? else { return Ok(None) };
        let Some(h) = FrameHeader::decode(bytes, number, offset) else { return Ok(None) };
        let len = h.payload_len as usize;
        if len == 0 || len as u64 > MAX_PAYLOAD_BYTES {
            return Ok(None);
        }
        let Some(bytes) = self.window(offset, HEADER_BYTES + len)? else { return Ok(None) };
        let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + len).unwrap_or_default();
        let matches = crc32c(0, payload) == h.payload_crc || broken(Mutation::BelieveTornTail);
        Ok(matches.then_some(h))
    }

    /// The payload of a frame that [`Reading::frame`] has just returned.
    fn payload(&mut self, offset: u64, h: &FrameHeader) -> Result<&[u8]> {
        let len = HEADER_BYTES + h.payload_len as usize;
        let bytes = self.window(offset, len)?.unwrap_or_default();
        Ok(bytes.get(HEADER_BYTES..len).unwrap_or_default())
    }

    /// The operations of a frame that [`Reading::frame`] has just returned, one of a batch.
    fn batch(&mut self, offset: u64, h: &FrameHeader) -> Result<Cow<'_, [u8]>> {
        if h.kind != FrameKind::Sealed {
            return Ok(self.payload(offset, h)?.into());
        }
        let seal = self.seal()?;
        let unit = Unit::Frame { segment: self.number, offset };
        let opened = seal.opened(unit, &h.first_seq.to_le_bytes(), self.payload(offset, h)?);
        opened.map(Cow::Owned).ok_or_else(|| Error::corrupt(&self.path, Some(offset), seal.refusal()))
    }

    /// What the segment's batches are sealed with: its header says so, and its link.
    fn seal(&mut self) -> Result<Arc<Seal>> {
        if let Some(seal) = &self.seal {
            return Ok(seal.clone());
        }
        let stamp = match self.header.and_then(|h| h.stamp) {
            Some(stamp) => Some(stamp),
            None => self.link()?.and_then(|(link, _)| link.stamp),
        };
        match ring::of_file(&self.io, stamp, &self.path)? {
            Some(seal) => Ok(self.seal.insert(seal).clone()),
            None => {
                let detail = "nothing says any more what the segment was encrypted with";
                Err(Error::corrupt(&self.path, Some(FIRST_FRAME), detail))
            }
        }
    }

    /// The link that begins the segment and where the frame behind it begins.
    fn link(&mut self) -> Result<Option<(Link, u64)>> {
        let Some(h) = self.frame(FIRST_FRAME)? else { return Ok(None) };
        if h.kind != FrameKind::Link {
            return Ok(None);
        }
        let link = Link::decode(self.payload(FIRST_FRAME, &h)?);
        Ok(link.map(|l| (l, h.next_offset(FIRST_FRAME))))
    }
}
