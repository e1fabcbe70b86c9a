//! Payloads of the log from any bytes.

use super::{Op, decode, encode, encode_range};
use crate::key::{self, Prefix};

/// Decodes `data`; what precedes the first error must encode to the same operations.
pub fn run(data: &[u8]) {
    let mut again = Vec::new();
    let mut good = Vec::new();
    let mut bytes = 0;
    for op in decode(data) {
        let Ok(op) = op else { break };
        match op {
            Op::Version { kind, key, value } => {
                let (id, user) = key::split(key).expect("checked by the decoder");
                let prefix = Prefix::new(id);
                assert_eq!([prefix.as_slice(), user].concat(), key, "keys are canonical");
                encode(&mut again, &prefix, kind, user, value);
                bytes += key.len() + value.len();
            }
            Op::DeleteRange { start, end } => {
                assert!(start < end, "a range has keys");
                encode_range(&mut again, start, end);
                bytes += start.len() + end.len();
            }
        }
        good.push(op);
    }
    assert!(bytes <= data.len());
    let read: Vec<_> = decode(&again).map(|op| op.expect("it was encoded just now")).collect();
    assert_eq!(read, good);
}
