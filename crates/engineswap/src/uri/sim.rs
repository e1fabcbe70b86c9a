//! The options of the simulated disk.

use std::fmt;

use super::parse::{bad, flag, number, unknown};
use crate::Result;

/// Options of the sim engine ([`crate::sim`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Where all choices come from.
    pub seed: u64,
    /// Operations in flight at most, in each queue.
    pub depth: u32,
    /// Whether operations of a queue overtake each other; on by default.
    pub reorder: bool,
    /// The longest that an operation takes, in microseconds of the disk's own time.
    pub delay_us: u32,
    /// Whether that time is slept, too.
    pub sleep: bool,
    /// Bytes that files may take; without it, all there is.
    pub capacity: Option<u64>,
    /// What direct transfers must be aligned to: 512 to 65536; 0 if files cannot be opened for direct I/O.
    pub align: u32,
    /// Whether files can be mapped.
    pub map: bool,
    /// Copy on write: every block that is written goes to a new place, so rewriting needs space too.
    pub cow: bool,
    /// Operations that are alone go through a queue, too, and files cannot be mapped.
    pub queue_always: bool,
    /// Which calls go wrong ([`crate::sim::plan`]): the rules, or the path of a file that has them.
    pub plan: Option<String>,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            seed: 1,
            depth: 128,
            reorder: true,
            delay_us: 100,
            sleep: false,
            capacity: None,
            align: 512,
            map: true,
            cow: false,
            queue_always: false,
            plan: None,
        }
    }
}

impl SimConfig {
    /// The options' names.
    pub const OPTIONS: [&'static str; 11] = [
        "seed",
        "depth",
        "reorder",
        "delay",
        "sleep",
        "capacity",
        "align",
        "map",
        "cow",
        "queue_always",
        "plan",
    ];

    /// The same with an option of a URI: `with("seed", Some("7"))`. A plan is written as in a query: `+` or `%20` for
    /// a space, `%0A` or `;` between rules, `%26` for `&`.
    pub fn with(mut self, name: &str, value: Option<&str>) -> Result<SimConfig> {
        let on = |k, v| flag(k, v).map(|f| f == Some(true));
        let given = value.unwrap_or("");
        match name {
            "seed" => {
                self.seed =
                    given.parse().map_err(|_| bad(format!("'seed' takes a number, not '{given}'")))?;
            }
            "depth" => self.depth = number(name, value, 1, 4096)?,
            "reorder" => self.reorder = on(name, value)?,
            "delay" => self.delay_us = number(name, value, 0, 1_000_000)?,
            "sleep" => self.sleep = on(name, value)?,
            "capacity" => self.capacity = Some(bytes(name, given)?),
            "align" => {
                let n = number(name, value, 0, 65_536)?;
                if n != 0 && (n < 512 || !n.is_power_of_two()) {
                    return Err(bad(format!("'align' takes 0 or a power of two from 512, not '{n}'")));
                }
                self.align = n;
            }
            "map" => self.map = on(name, value)?,
            "cow" => self.cow = on(name, value)?,
            "queue_always" => self.queue_always = on(name, value)?,
            "plan" => {
                let text = decode(given).filter(|t| !t.trim().is_empty());
                self.plan = Some(text.ok_or_else(|| bad("'plan' takes rules or the path of a file".into()))?);
            }
            _ => return Err(unknown("sim", name, &SimConfig::OPTIONS.join(", "))),
        }
        Ok(self)
    }
}

fn bytes(name: &str, value: &str) -> Result<u64> {
    let (digits, unit) = match value.as_bytes().last() {
        Some(b'k') => (&value[..value.len() - 1], 1 << 10),
        Some(b'm') => (&value[..value.len() - 1], 1 << 20),
        Some(b'g') => (&value[..value.len() - 1], 1 << 30),
        _ => (value, 1u64),
    };
    let n = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    n.ok_or_else(|| bad(format!("'{name}' takes bytes, with k, m or g, not '{value}'")))
}

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        out.push(match b {
            b'+' => b' ',
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
            }
            b => b,
        });
    }
    String::from_utf8(out).ok()
}

fn encode(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for b in text.bytes() {
        match b {
            b' ' => f.write_str("+")?,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' | b'.' | b'*' | b'/' | b',' | b';' => {
                write!(f, "{}", b as char)?;
            }
            b => write!(f, "%{b:02X}")?,
        }
    }
    Ok(())
}

impl fmt::Display for SimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |b| if b { "on" } else { "off" };
        write!(f, "sim?seed={}&depth={}&reorder={}", self.seed, self.depth, on(self.reorder))?;
        write!(f, "&delay={}&sleep={}", self.delay_us, on(self.sleep))?;
        if let Some(c) = self.capacity {
            write!(f, "&capacity={c}")?;
        }
        write!(f, "&align={}&map={}&cow={}", self.align, on(self.map), on(self.cow))?;
        if self.queue_always {
            f.write_str("&queue_always")?;
        }
        if let Some(p) = &self.plan {
            f.write_str("&plan=")?;
            encode(p, f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ErrorKind};

    #[test]
    fn options_and_back() {
        let uri = "sim?seed=7&delay=0&capacity=2m&align=4096&map=off&cow&queue_always&plan=on+write+%22*.sst%22+nth+3+EIO;on+any+cut";
        let c: Config = uri.parse().unwrap();
        let Config::Sim(s) = &c else { panic!("{c:?}") };
        assert_eq!(s.plan.as_deref(), Some("on write \"*.sst\" nth 3 EIO;on any cut"));
        assert_eq!((s.seed, s.delay_us, s.capacity, s.align), (7, 0, Some(2 << 20), 4096));
        assert!(!s.map && s.cow && s.queue_always);
        assert_eq!(c.to_string().parse::<Config>().unwrap(), c);
        assert_eq!("sim".parse::<Config>().unwrap(), Config::Sim(SimConfig::default()));
    }

    #[test]
    fn mistakes() {
        for (uri, part) in [
            ("sim?seed=x", "'seed' takes a number, not 'x'"),
            ("sim?seeds=1", "valid: seed, depth, reorder"),
            ("sim?align=700", "power of two"),
            ("sim?capacity=2x", "'capacity' takes bytes"),
            ("sim?plan", "'plan' takes rules"),
            ("sim?plan=%zz", "'plan' takes rules"),
        ] {
            let e = uri.parse::<Config>().unwrap_err();
            assert!(e.kind() == ErrorKind::InvalidInput && e.to_string().contains(part), "{uri}: {e}");
        }
        for (uri, part) in [
            ("sim?plan=on+write+EWHAT", "no action"),
            ("sim?plan=/no/such/plan", "/no/such/plan: No such file"),
        ] {
            let e = crate::Io::from_uri(uri).err().unwrap();
            assert!(e.kind() == ErrorKind::InvalidInput && e.to_string().contains(part), "{uri}: {e}");
        }
    }
}
