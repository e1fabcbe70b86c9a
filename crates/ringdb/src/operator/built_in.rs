//! The operators that every store has.

use super::MergeOperator;

/// What [`Append`] with a separator is called, before it.
const APPEND_WITH: &str = "append:";

/// Sums of u64, little endian, that wrap around.
struct Add;

/// The greatest of all, in the order of bytes.
struct Max;

/// One behind the other, with a separator between them.
struct Append {
    name: String,
}

/// The built-in operator of that name.
pub(super) fn named(name: &str) -> Option<Box<dyn MergeOperator>> {
    match name {
        "add" => Some(Box::new(Add)),
        "max" => Some(Box::new(Max)),
        _ if name == "append" || name.starts_with(APPEND_WITH) => {
            Some(Box::new(Append { name: name.into() }))
        }
        _ => None,
    }
}

fn number(bytes: &[u8]) -> Result<u64, String> {
    let number = bytes.try_into().map(u64::from_le_bytes);
    number.map_err(|_| format!("`add` needs 8 bytes, a u64 in little endian, and there are {}", bytes.len()))
}

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn merge(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut sum = value.map_or(Ok(0), number)?;
        for operand in operands {
            sum = sum.wrapping_add(number(operand)?);
        }
        Ok(sum.to_le_bytes().to_vec())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }

    fn check(&self, operand: &[u8]) -> Result<(), String> {
        number(operand).map(drop)
    }
}

impl MergeOperator for Max {
    fn name(&self) -> &str {
        "max"
    }

    fn merge(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let all = value.into_iter().chain(operands.iter().copied());
        Ok(all.max().unwrap_or_default().to_vec())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

impl Append {
    fn separator(&self) -> &[u8] {
        self.name.strip_prefix(APPEND_WITH).unwrap_or_default().as_bytes()
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let all: Vec<&[u8]> = value.into_iter().chain(operands.iter().copied()).collect();
        Ok(all.join(self.separator()))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(name: &str, value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let op = named(name).expect("built in");
        assert_eq!(op.name(), name);
        op.merge(b"k", value, operands)
    }

    #[test]
    fn each_does_what_it_says() {
        let n = |n: u64| n.to_le_bytes();
        assert_eq!(merged("add", None, &[&n(2), &n(3)]).unwrap(), n(5));
        assert_eq!(merged("add", Some(&n(u64::MAX)), &[&n(3)]).unwrap(), n(2));
        assert!(merged("add", Some(b"seven"), &[&n(3)]).unwrap_err().contains("there are 5"));
        assert!(named("add").unwrap().check(b"").is_err());
        assert_eq!(merged("max", Some(b"b"), &[b"a", b"ba"]).unwrap(), b"ba");
        assert_eq!(merged("append", None, &[b"a", b"b"]).unwrap(), b"ab");
        assert_eq!(merged("append:, ", Some(b""), &[b"a", b"b"]).unwrap(), b", a, b");
        assert!(named("minimum").is_none() && named("appendix").is_none());
    }
}
