//! Compression of data blocks: LZ4 and Zstandard, with their working memory kept per thread or writer.

use std::cell::RefCell;

use crate::options::Compression;

/// How the bytes of a stored block are encoded. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    Plain = 0,
    Lz4 = 1,
    Zstd = 2,
    /// Not compressed, in a sealed table: as plain, but never to be read in place.
    Sealed = 3,
}

impl Encoding {
    pub fn from_u8(v: u8) -> Option<Encoding> {
        match v {
            0 => Some(Encoding::Plain),
            1 => Some(Encoding::Lz4),
            2 => Some(Encoding::Zstd),
            3 => Some(Encoding::Sealed),
            _ => None,
        }
    }

    pub fn is_compressed(self) -> bool {
        matches!(self, Encoding::Lz4 | Encoding::Zstd)
    }
}

impl From<Encoding> for Compression {
    fn from(e: Encoding) -> Compression {
        match e {
            Encoding::Plain | Encoding::Sealed => Compression::None,
            Encoding::Lz4 => Compression::Lz4,
            Encoding::Zstd => Compression::Zstd,
        }
    }
}

impl From<Compression> for Encoding {
    fn from(c: Compression) -> Encoding {
        match c {
            Compression::None => Encoding::Plain,
            Compression::Lz4 => Encoding::Lz4,
            Compression::Zstd => Encoding::Zstd,
        }
    }
}

const ZSTD_LEVEL: i32 = 1;

/// Compresses blocks one after the other.
pub(crate) struct Compressor {
    encoding: Encoding,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    pub fn new(encoding: Encoding) -> Compressor {
        Compressor { encoding, zstd: None, out: Vec::new() }
    }

    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// `src` compressed, if that is shorter than `limit`.
    pub fn compress(&mut self, src: &[u8], limit: usize) -> Option<&[u8]> {
        let n = match self.encoding {
            Encoding::Plain | Encoding::Sealed => return None,
            Encoding::Lz4 => {
                self.out.resize(lz4_flex::block::get_maximum_output_size(src.len()), 0);
                lz4_flex::block::compress_into(src, &mut self.out).ok()?
            }
            Encoding::Zstd => {
                self.out.resize(limit, 0);
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                // An error means "does not fit": the block is stored plain.
                self.zstd.as_mut()?.compress_to_buffer(src, &mut self.out[..]).ok()?
            }
        };
        (n < limit).then(|| &self.out[..n])
    }
}

thread_local! {
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Decompresses `src` into `out`, which it must fill exactly.
pub(crate) fn decompress(encoding: Encoding, src: &[u8], out: &mut [u8]) -> Result<(), String> {
    let n = match encoding {
        Encoding::Plain | Encoding::Sealed => {
            if src.len() == out.len() {
                out.copy_from_slice(src);
            }
            src.len()
        }
        Encoding::Lz4 => lz4_flex::block::decompress_into(src, out).map_err(|e| format!("LZ4: {e}"))?,
        Encoding::Zstd => ZSTD.with(|z| {
            let mut z = z.borrow_mut();
            if z.is_none() {
                *z = zstd::bulk::Decompressor::new().ok();
            }
            let z = z.as_mut().ok_or("Zstandard: no memory")?;
            z.decompress_to_buffer(src, &mut *out).map_err(|e| format!("Zstandard: {e}"))
        })?,
    };
    if n == out.len() { Ok(()) } else { Err(format!("decompresses to {n} bytes, not {}", out.len())) }
}

/// Appends what `src` decompresses to, at most `most` bytes, to `out`: how many; `None` if it does not.
pub(crate) fn decompress_any(
    encoding: Encoding,
    src: &[u8],
    most: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let before = out.len();
    out.resize(before + most, 0);
    let into = &mut out[before..];
    let n = match encoding {
        Encoding::Plain | Encoding::Sealed => None,
        Encoding::Lz4 => lz4_flex::block::decompress_into(src, into).ok(),
        Encoding::Zstd => ZSTD.with(|z| {
            let mut z = z.borrow_mut();
            if z.is_none() {
                *z = zstd::bulk::Decompressor::new().ok();
            }
            z.as_mut()?.decompress_to_buffer(src, into).ok()
        }),
    };
    out.truncate(before + n.unwrap_or(0));
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_read_back_and_random_bytes_are_left_plain() {
        let text: Vec<u8> = (0..5000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let noise: Vec<u8> = (0..4096u64).map(|i| (crate::key::hash(&i.to_le_bytes()) >> 13) as u8).collect();
        for encoding in [Encoding::Lz4, Encoding::Zstd] {
            let mut c = Compressor::new(encoding);
            assert!(c.compress(&noise, noise.len() / 8 * 7).is_none());
            let packed = c.compress(&text, text.len()).expect("compressible").to_vec();
            let mut out = vec![0; text.len()];
            assert_eq!(decompress(encoding, &packed, &mut out), Ok(()));
            assert_eq!(out, text);
            assert!(decompress(encoding, &packed, &mut out[1..]).is_err());
            assert!(decompress(encoding, &packed, &mut vec![0; text.len() + 1]).is_err());
            assert!(decompress(encoding, &packed[..packed.len() - 1], &mut out).is_err());
        }
        assert!(Compressor::new(Encoding::Plain).compress(&text, text.len()).is_none());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(b in proptest::collection::vec(any::<u8>(), 0..300), n in 0usize..500) {
            for encoding in [Encoding::Plain, Encoding::Lz4, Encoding::Zstd] {
                let _ = decompress(encoding, &b, &mut vec![0; n]);
            }
        }
    }
}
