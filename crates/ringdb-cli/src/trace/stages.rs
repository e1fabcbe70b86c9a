//! The stages of a request, and their sums.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::marks::Marks;

/// What a request is in, from its submission by the program to its end there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// User code, before the system call; with SQPOLL, until the poller has seen it.
    Before,
    /// The system call, until the ring or the context takes it; of a plain call, until the file system has it.
    Call,
    /// The kernel begins it in the submitter's (or poller's) thread.
    Submission,
    /// It waits for a kernel worker.
    HandOver,
    /// A worker has it, until the file system has.
    Worker,
    /// The file system and the page cache, copies included.
    FileSystem,
    /// From the first request to the device to the end of the last.
    Device,
    /// It is done, until its completion is there for the thread that waits: task work.
    TaskWork,
    /// From the waking of that thread until it runs.
    WakeUp,
    /// Back in user code, until the program has it.
    After,
}

/// All stages, in their order.
pub const STAGES: [(Stage, &str); 10] = [
    (Stage::Before, "before submission"),
    (Stage::Call, "system call"),
    (Stage::Submission, "submission"),
    (Stage::HandOver, "hand-over to a worker"),
    (Stage::Worker, "worker"),
    (Stage::FileSystem, "file system"),
    (Stage::Device, "device"),
    (Stage::TaskWork, "task work"),
    (Stage::WakeUp, "wake-up"),
    (Stage::After, "back in user code"),
];

/// Nanoseconds of each stage of a request, and how many of its marks lie outside of it or out of order. They belong to
/// another one, or were lost, and are left out: their time is that of the stage before.
pub fn split(m: &Marks) -> ([u64; 10], u32) {
    use Stage::*;
    let mut astray = 0;
    let mut marks = vec![(m.begun, Before)];
    // In the order in which they come, each not before the last that is there.
    let mut then = |marks: &mut Vec<(u64, Stage)>, at: u64, stage: Stage| {
        let last = marks.last().map_or(0, |l| l.0);
        if at == 0 {
            return;
        }
        match (last..=m.end).contains(&at) {
            true => marks.push((at, stage)),
            false => astray += 1,
        }
    };
    // A call for several requests may have begun before this one was submitted.
    then(&mut marks, m.call.max(if m.call == 0 { 0 } else { m.begun }), Call);
    then(&mut marks, m.taken, Submission);
    if m.fs != 0 && (m.punted == 0 || m.fs < m.punted) {
        then(&mut marks, m.fs, FileSystem);
    }
    then(&mut marks, m.punted, HandOver);
    if m.punted != 0 {
        // A worker that was free before has waited for it.
        then(&mut marks, if m.worker == 0 { 0 } else { m.worker.max(m.punted) }, Worker);
        then(&mut marks, if m.fs > m.worker { m.fs } else { 0 }, FileSystem);
    }
    then(&mut marks, m.issued, Device);
    let in_worker = m.punted != 0 && m.worked > m.done;
    then(&mut marks, m.done, if in_worker { FileSystem } else { TaskWork });
    if in_worker {
        then(&mut marks, m.worked, TaskWork);
    }
    // Wakings for this request only: the last one, if it came after all that happened to it.
    let last = marks.last().map_or(0, |l| l.0);
    let (waking, running) = match m.waking >= last && m.running > m.waking {
        true => (m.waking, m.running),
        false => (0, 0),
    };
    let rest = if m.plain { FileSystem } else { TaskWork };
    let posted_first = m.posted != 0 && m.posted < waking;
    if posted_first {
        then(&mut marks, m.posted, TaskWork);
    }
    then(&mut marks, waking, WakeUp);
    then(&mut marks, running, rest);
    if !posted_first {
        // Seen without a call, it is the program's from here on.
        then(&mut marks, m.posted, if m.returned > m.posted { TaskWork } else { After });
    }
    let last = marks.last().map_or(0, |l| l.0);
    then(&mut marks, if m.returned > last { m.returned } else { 0 }, After);
    marks.push((m.end, After));
    let mut each = [0; 10];
    for pair in marks.windows(2) {
        each[pair[0].1 as usize] += pair[1].0 - pair[0].0;
    }
    (each, astray)
}

/// The requests of an engine, or of its workers, added up.
#[derive(Clone, Debug)]
pub struct Sums {
    pub requests: u64,
    pub nanoseconds: [u64; 10],
    pub whole: Histogram<u64>,
    pub punted: u64,
    pub plain: u64,
    pub astray: u64,
}

impl Default for Sums {
    fn default() -> Sums {
        // Three digits up to an hour, in bounded memory.
        let whole = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are allowed");
        Sums { requests: 0, nanoseconds: [0; 10], whole, punted: 0, plain: 0, astray: 0 }
    }
}

impl Sums {
    pub fn add(&mut self, m: &Marks) {
        let (each, astray) = split(m);
        for (sum, n) in self.nanoseconds.iter_mut().zip(each) {
            *sum += n;
        }
        self.requests += 1;
        self.whole.saturating_record(m.end - m.begun);
        self.punted += u64::from(m.punted != 0);
        self.plain += u64::from(m.plain);
        self.astray += u64::from(astray != 0);
    }

    /// Microseconds that a request takes, and those of each stage.
    pub fn mean_us(&self) -> (f64, [f64; 10]) {
        let each = self.nanoseconds.map(|n| n as f64 / 1000.0 / self.requests.max(1) as f64);
        (each.iter().sum(), each)
    }
}

#[cfg(test)]
mod tests {
    use super::super::marks::parse;
    use super::*;

    /// The stages that took some time, of recorded events.
    fn stages(line: &str) -> Vec<(Stage, u64)> {
        let m = parse(line).unwrap();
        let (each, astray) = split(&m);
        assert_eq!(each.iter().sum::<u64>(), m.end - m.begun, "{line}");
        assert_eq!(astray, 0, "{line}");
        STAGES.iter().map(|(s, _)| (*s, each[*s as usize])).filter(|(_, n)| *n != 0).collect()
    }

    #[test]
    fn a_plain_read_is_call_file_system_device_and_wake_up() {
        let line = "r posix read 24904 24904 0 1 4096 4096 14679877328118 14679877330922 0 0 0 14679877332955 14679877338143 \
                    14679877379469 0 0 14679877381242 14679877397151 14679877399464 14679877401828";
        assert_eq!(
            stages(line),
            [
                (Stage::Before, 2804),
                (Stage::Call, 2033),
                (Stage::FileSystem, 7501),
                (Stage::Device, 41326),
                (Stage::TaskWork, 1773),
                (Stage::WakeUp, 15909),
                (Stage::After, 2364)
            ]
        );
    }

    #[test]
    fn a_buffered_append_on_a_ring_is_handed_to_a_worker_and_back() {
        let line = "r io_uring write 5201 5201 5202 0 4096 4096 13991858457169 13991858460624 13991858462226 13991858464339 \
                    13991858467895 13991858472231 0 0 13991858478460 13991858607472 13991858478460 13991858605379 \
                    13991858608994 13991858612179";
        assert_eq!(
            stages(line),
            [
                (Stage::Before, 3455),
                (Stage::Call, 1602),
                (Stage::Submission, 2113),
                (Stage::HandOver, 3556),
                (Stage::Worker, 4336),
                (Stage::FileSystem, 6229),
                (Stage::TaskWork, 3615),
                (Stage::WakeUp, 126_919),
                (Stage::After, 3185)
            ]
        );
    }

    #[test]
    fn a_direct_read_of_a_ring_is_finished_by_task_work() {
        let line = "r io_uring read 26197 26197 0 0 4096 4096 14721183403221 14721183405224 14721183406386 0 0 14721183408329 \
                    14721183413426 14721183475203 0 14721183498683 14721183476685 14721183496119 14721183499915 \
                    14721183502979";
        let all = stages(line);
        assert!(all.contains(&(Stage::Device, 61777)) && all.contains(&(Stage::WakeUp, 19434)), "{all:?}");
        assert!(!all.iter().any(|(s, _)| matches!(s, Stage::HandOver | Stage::Worker)), "{all:?}");
    }

    #[test]
    fn what_was_woken_for_another_request_is_no_wake_up_of_this_one() {
        // Its completion was found by a thread that had been woken before the device was done.
        let line =
            "r io_uring read 1 1 0 0 4096 4096 1000 1010 1020 0 0 1030 1040 2000 0 2100 1500 1600 2200 2300";
        assert!(!stages(line).iter().any(|(s, _)| *s == Stage::WakeUp));
    }

    #[test]
    fn marks_of_another_request_are_counted_and_leave_the_sum_right() {
        let line = "r posix read 1 1 0 1 4096 4096 1000 1010 0 0 0 1030 1040 900 0 0 0 0 1200 1300";
        let m = parse(line).unwrap();
        let (each, astray) = split(&m);
        assert_eq!((each.iter().sum::<u64>(), astray), (300, 1));
        let mut sums = Sums::default();
        sums.add(&m);
        assert_eq!((sums.requests, sums.astray, sums.plain, sums.punted), (1, 1, 1, 0));
        assert_eq!(sums.whole.value_at_quantile(0.99), 300);
        assert!((sums.mean_us().0 - 0.3).abs() < 1e-9);
    }
}
