//! One JSON object a line. Bytes that are UTF-8 are strings under `key` and `value`; others are under
//! `key_base64` and `value_base64` (or `key_hex`, `value_hex`).

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::Next;
use crate::coding::Coding;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_base64: Option<String>,
    key_hex: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    value_hex: Option<String>,
}

/// The bytes of a field that may be given in three ways, exactly one of which must be there.
fn field(
    name: &str,
    coding: Coding,
    plain: Option<String>,
    base64: Option<String>,
    hex: Option<String>,
) -> Result<Vec<u8>, String> {
    let (coding, text) = match (plain, base64, hex) {
        (Some(t), None, None) => (coding, t),
        (None, Some(t), None) => (Coding::Base64, t),
        (None, None, Some(t)) => (Coding::Hex, t),
        (None, None, None) => return Err(format!("no \"{name}\" (nor \"{name}_base64\", \"{name}_hex\")")),
        _ => return Err(format!("the {name} is given twice")),
    };
    match coding {
        Coding::Text => Ok(text.into_bytes()),
        c => c.decode(text.as_bytes()).map_err(|e| format!("the {name} is {e}")),
    }
}

/// The record in a line. With a coding, the plain `key` and `value` are in that coding.
pub fn parse(line: u64, coding: Coding, bytes: &[u8]) -> Next {
    match serde_json::from_slice::<Line>(bytes) {
        Ok(l) => {
            let value = field("value", coding, l.value, l.value_base64, l.value_hex);
            Next::of(line, field("key", coding, l.key, l.key_base64, l.key_hex), value)
        }
        Err(e) => Next::Bad { line, why: format!("not such an object: {e}") },
    }
}

#[derive(Serialize, Default)]
struct Pair<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

type Forms<'a> = (Option<&'a str>, Option<String>, Option<String>);

fn forms(bytes: &[u8], coding: Coding) -> Forms<'_> {
    let coded = |c: Coding| String::from_utf8_lossy(&c.encode(bytes)).into_owned();
    match coding {
        Coding::Text => match std::str::from_utf8(bytes) {
            Ok(s) => (Some(s), None, None),
            Err(_) => (None, Some(coded(Coding::Base64)), None),
        },
        Coding::Base64 => (None, Some(coded(coding)), None),
        Coding::Hex => (None, None, Some(coded(coding))),
    }
}

/// Writes one object and a line end; without the value if there is none to show.
pub fn write_pair(out: &mut dyn Write, coding: Coding, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
    let (key, key_base64, key_hex) = forms(key, coding);
    let (value, value_base64, value_hex) = value.map_or((None, None, None), |v| forms(v, coding));
    let pair = Pair { key, key_base64, key_hex, value, value_base64, value_hex };
    serde_json::to_writer(&mut *out, &pair)?;
    out.write_all(b"\n")
}

/// Appends a record and a line end.
pub fn write(out: &mut Vec<u8>, coding: Coding, key: &[u8], value: &[u8]) -> io::Result<()> {
    write_pair(out, coding, key, Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_object_is_said() {
        for (text, why) in [
            ("{\"key\":\"a\"}", "no \"value\""),
            ("{\"value\":\"a\"}", "no \"key\""),
            ("{\"key\":1,\"value\":\"a\"}", "not such an object"),
            ("{\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"a\"}", "given twice"),
            ("{\"key_hex\":\"6\",\"value\":\"a\"}", "not hexadecimal"),
            ("{\"key\":\"a\",\"value\":\"b\",\"c\":1}", "unknown field"),
            ("", "not such an object"),
        ] {
            match parse(1, Coding::Text, text.as_bytes()) {
                Next::Bad { line: 1, why: w } => assert!(w.contains(why), "{text}: {w}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
