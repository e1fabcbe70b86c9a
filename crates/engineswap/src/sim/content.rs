//! The bytes of a file as pages that are shared between copies: to copy a file costs a pointer for each 256 KiB, to
//! change it a page. Pages of zeros take no memory.

use std::sync::Arc;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Pages of a chunk.
const FAN: usize = 64;

type Page = Arc<[u8; PAGE]>;

#[derive(Clone)]
struct Chunk([Option<Page>; FAN]);

/// A file's bytes. Beyond `len` every page is zero.
#[derive(Clone, Default)]
pub(crate) struct Content {
    len: u64,
    chunks: Vec<Option<Arc<Chunk>>>,
}

static ZEROS: [u8; PAGE] = [0; PAGE];

/// The parts of a range of bytes in each of its pages: the page, where in it, how many bytes.
pub(crate) fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, inside) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let n = ((PAGE - inside) as u64).min(end - at) as usize;
        at += n as u64;
        Some((page, inside, n))
    })
}

impl Content {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// A page's bytes; `None` for zeros.
    pub fn page(&self, n: u64) -> Option<&[u8; PAGE]> {
        let chunk = self.chunks.get(n as usize / FAN)?.as_ref()?;
        chunk.0[n as usize % FAN].as_deref()
    }

    /// Replaces a page; the length stays.
    pub fn put_page(&mut self, n: u64, data: &[u8; PAGE]) {
        let page = if data == &ZEROS { None } else { Some(Arc::new(*data)) };
        self.set(n, page);
    }

    fn set(&mut self, n: u64, page: Option<Page>) {
        let (chunk, i) = (n as usize / FAN, n as usize % FAN);
        if chunk >= self.chunks.len() {
            if page.is_none() {
                return;
            }
            self.chunks.resize(chunk + 1, None);
        }
        match (&mut self.chunks[chunk], page) {
            (None, None) => {}
            (Some(c), None) if c.0[i].is_none() => {}
            (slot, page) => {
                let c = slot.get_or_insert_with(|| Arc::new(Chunk([const { None }; FAN])));
                Arc::make_mut(c).0[i] = page;
            }
        }
    }

    fn page_mut(&mut self, n: u64) -> &mut [u8; PAGE] {
        let (chunk, i) = (n as usize / FAN, n as usize % FAN);
        if chunk >= self.chunks.len() {
            self.chunks.resize(chunk + 1, None);
        }
        let c = self.chunks[chunk].get_or_insert_with(|| Arc::new(Chunk([const { None }; FAN])));
        Arc::make_mut(Arc::make_mut(c).0[i].get_or_insert_with(|| Arc::new(ZEROS)))
    }

    /// Reads up to the end of the file; returns how many bytes.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64);
        let mut at = 0;
        for (page, inside, k) in parts(offset, n) {
            let out = &mut buf[at..at + k];
            match self.page(page) {
                Some(p) => out.copy_from_slice(&p[inside..inside + k]),
                None => out.fill(0),
            }
            at += k;
        }
        n as usize
    }

    /// Writes, and grows the file to hold it.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = 0;
        for (page, inside, k) in parts(offset, data.len() as u64) {
            let part = &data[at..at + k];
            at += k;
            if let Ok(whole) = <&[u8; PAGE]>::try_from(part) {
                self.put_page(page, whole);
            } else if self.page(page).is_some() || part != &ZEROS[..k] {
                self.page_mut(page)[inside..inside + k].copy_from_slice(part);
            }
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    /// Zeros in a range, which grows the file.
    pub fn zero(&mut self, offset: u64, len: u64) {
        self.clear(offset, offset + len);
        self.len = self.len.max(offset + len);
    }

    fn clear(&mut self, from: u64, to: u64) {
        // Beyond the last chunk there is nothing but zeros.
        let to = to.min((self.chunks.len() * FAN * PAGE) as u64);
        for (page, inside, k) in parts(from, to.saturating_sub(from)) {
            if k == PAGE {
                self.set(page, None);
            } else if self.page(page).is_some() {
                self.page_mut(page)[inside..inside + k].fill(0);
            }
        }
    }

    /// Cuts or grows the file.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.clear(len, self.len);
            self.chunks.truncate(len.div_ceil((PAGE * FAN) as u64) as usize);
        }
        self.len = len;
    }

    /// Flips a bit of the file.
    pub fn flip(&mut self, bit: u64) {
        let (page, inside) = (bit / 8 / PAGE as u64, (bit / 8 % PAGE as u64) as usize);
        self.page_mut(page)[inside] ^= 1 << (bit % 8);
    }

    /// All bytes, for those who want them in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len as usize];
        self.read(&mut all, 0);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn it_is_like_a_vector_and_copies_stay_what_they_were() {
        let mut r = Random(3);
        let (mut c, mut model) = (Content::default(), Vec::<u8>::new());
        let mut old = Vec::new();
        for step in 0..600 {
            let (at, n) = (r.below(600_000), r.below(3 * PAGE as u64));
            let end = (at + n) as usize;
            match r.below(6) {
                0 => {
                    c.set_len(at);
                    model.resize(at as usize, 0);
                }
                1 => {
                    c.zero(at, n);
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].fill(0);
                }
                _ => {
                    let data = vec![(step % 3) as u8; n as usize];
                    c.write(at, &data);
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&data);
                }
            }
            assert!(c.to_vec() == model, "step {step}");
            if step % 50 == 0 {
                old.push((c.clone(), model.clone()));
            }
        }
        assert!(old.iter().all(|(c, m)| c.to_vec() == *m));
        let mut c = old[3].0.clone();
        c.flip(8 * 5 + 1);
        assert_eq!(c.to_vec()[5], old[3].1[5] ^ 2);
    }
}
