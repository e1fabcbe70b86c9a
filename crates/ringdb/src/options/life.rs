//! How long puts live: the setting's limits, and its text in files.

use std::fmt;
use std::time::Duration;

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, Result};

/// Fails unless it is a whole number of milliseconds, of which 64 bits hold the count.
pub(crate) fn check(life: Duration) -> Result<()> {
    if life.subsec_nanos().is_multiple_of(1_000_000) && u64::try_from(life.as_millis()).is_ok() {
        return Ok(());
    }
    Err(Error::Invalid(format!("time_to_live is {life:?}: a whole number of milliseconds, 0 for ever")))
}

/// A time: seconds as a number, or text with a unit as in "36 h".
pub(super) struct Life(pub Duration);

impl<'de> Deserialize<'de> for Life {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Life, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Life;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time, as 3600 (seconds) or \"1 h\" (ms, s, min, h, d)")
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> std::result::Result<Life, E> {
                Ok(Life(Duration::from_secs(n)))
            }

            fn visit_i64<E: serde::de::Error>(self, n: i64) -> std::result::Result<Life, E> {
                let secs = u64::try_from(n).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))?;
                Ok(Life(Duration::from_secs(secs)))
            }

            fn visit_str<E: serde::de::Error>(self, s: &str) -> std::result::Result<Life, E> {
                parse(s).map(Life).ok_or_else(|| E::invalid_value(Unexpected::Str(s), &self))
            }
        }
        d.deserialize_any(Either)
    }
}

/// `90s`, `36 h`, `7d`: a whole number and a unit.
fn parse(s: &str) -> Option<Duration> {
    let s = s.trim();
    let (number, unit) = s.split_at(s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len()));
    let millis: u64 = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(millis).map(Duration::from_millis)
}

/// As text that [`Life`] reads.
pub(super) fn serialize<S: Serializer>(
    life: &Option<Duration>,
    s: S,
) -> std::result::Result<S::Ok, S::Error> {
    life.map(|life| format!("{} ms", life.as_millis())).serialize(s)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    d: D,
) -> std::result::Result<Option<Duration>, D::Error> {
    let life = Option::<Life>::deserialize(d)?.map(|l| l.0);
    life.map_or(Ok(()), check).map_err(D::Error::custom)?;
    Ok(life)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_mistakes_are_not() {
        for (text, millis) in
            [("5 ms", 5), ("90", 90_000), ("90s", 90_000), ("2min", 120_000), ("7 d", 604_800_000)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "h", "1.5h", "-1s", "1 y", "99999999999999999999s", "999999999999999d"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert!(check(Duration::from_millis(1)).is_ok() && check(Duration::ZERO).is_ok());
        assert!(check(Duration::from_micros(1)).is_err() && check(Duration::MAX).is_err());
    }
}
