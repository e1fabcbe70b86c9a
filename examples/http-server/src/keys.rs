//! Keys as they stand in URIs and lines.

use std::ops::Bound;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// The bytes of a percent-encoded key.
pub fn decode(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

/// Appends `key`, a tab, `value` and a line's end.
pub fn encode_pair(key: &[u8], value: &[u8], line: &mut Vec<u8>) {
    for (bytes, end) in [(key, b'\t'), (value, b'\n')] {
        percent_encode(bytes, NON_ALPHANUMERIC).for_each(|part| line.extend_from_slice(part.as_bytes()));
        line.push(end);
    }
}

type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The range and the largest number of pairs that a query asks for; or what is wrong with it.
pub fn range_of(query: &str) -> Result<(Ends, u64), String> {
    let (mut ends, mut limit) = ((Bound::Unbounded, Bound::Unbounded), u64::MAX);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("from", key)) => ends.0 = Bound::Included(decode(key)),
            Some(("to", key)) => ends.1 = Bound::Excluded(decode(key)),
            Some(("limit", n)) => limit = n.parse().map_err(|_| format!("limit={n} is not a number"))?,
            _ => return Err(format!("'{part}': from=KEY, to=KEY and limit=N are known")),
        }
    }
    Ok((ends, limit))
}
