//! Rust source as the rules see it: comments and literals blanked, and what is compiled for tests only.
//!
//! Not a parser. Blanking keeps every line and column, so that a rule can name the place. Item ends are found
//! by brackets.

/// The text with comments, strings and characters replaced by spaces; line breaks stay.
pub fn blank(text: &str) -> String {
    blanked(text, true)
}

fn blanked(text: &str, literals: bool) -> String {
    let mut out: Vec<u8> = text.as_bytes().to_vec();
    let b = text.as_bytes();
    let mut i = 0;
    while i < b.len() {
        let end = match b[i] {
            b'/' if b.get(i + 1) == Some(&b'/') => line_end(b, i),
            b'/' if b.get(i + 1) == Some(&b'*') => comment_end(b, i),
            b'"' => string_end(b, i),
            b'r' if !is_word(b, i.wrapping_sub(1))
                || matches!(b.get(i.wrapping_sub(1)), Some(b'b' | b'c')) =>
            {
                raw_end(b, i).unwrap_or(i + 1)
            }
            b'\'' => char_end(b, i).unwrap_or(i + 1),
            _ => i + 1,
        };
        if end > i + 1 && (literals || b[i] == b'/') {
            for c in &mut out[i..end] {
                if *c != b'\n' {
                    *c = b' ';
                }
            }
        }
        i = end;
    }
    // Only whole literals and comments were replaced, so what is left is whole characters.
    String::from_utf8(out).expect("blanked text")
}

fn is_word(b: &[u8], i: usize) -> bool {
    b.get(i).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_')
}

fn line_end(b: &[u8], i: usize) -> usize {
    b[i..].iter().position(|c| *c == b'\n').map_or(b.len(), |n| i + n)
}

fn comment_end(b: &[u8], mut i: usize) -> usize {
    let mut depth = 0;
    while i < b.len() {
        match &b[i..(i + 2).min(b.len())] {
            b"/*" => (depth, i) = (depth + 1, i + 2),
            b"*/" => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

fn string_end(b: &[u8], mut i: usize) -> usize {
    i += 1;
    while i < b.len() && b[i] != b'"' {
        i += if b[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(b.len())
}

/// The end of `r"..."` or `r#"..."#` that begins at `i`; `None` for a raw identifier or a plain word.
fn raw_end(b: &[u8], i: usize) -> Option<usize> {
    let hashes = b[i + 1..].iter().take_while(|c| **c == b'#').count();
    let open = i + 1 + hashes;
    if b.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let rest = &b[open + 1..];
    Some(rest.windows(close.len()).position(|w| w == close).map_or(b.len(), |n| open + 1 + n + close.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(b: &[u8], i: usize) -> Option<usize> {
    if b.get(i + 1) == Some(&b'\\') {
        let from = i + 3;
        return b[from..].iter().position(|c| *c == b'\'').map(|n| from + n + 1);
    }
    let len = match b.get(i + 1)? {
        0..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (b.get(i + 1 + len) == Some(&b'\'')).then_some(i + 2 + len)
}

/// The index behind the bracket that closes the one at `open`.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (i, c) in code.as_bytes().iter().enumerate().skip(open) {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The end of the item, field or statement that begins at `from`: behind its `;` or `{}`, at a field's `,`,
/// or before the bracket that closes what it is in.
pub fn item_end(code: &str, from: usize) -> usize {
    const ITEMS: &[&str] = &[
        "pub",
        "fn",
        "mod",
        "use",
        "impl",
        "struct",
        "enum",
        "union",
        "trait",
        "const",
        "static",
        "type",
        "unsafe",
        "extern",
        "macro_rules",
        "async",
        "let",
    ];
    let word: String = code[from..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    // A `pub` field ends at its comma, as a private one does.
    let is_item = ITEMS.contains(&word.as_str()) && !is_field(&code[from..]);
    let mut i = from;
    while i < code.len() {
        match code.as_bytes()[i] {
            b'(' | b'[' => i = closing(code, i) - 1,
            b'{' => return closing(code, i),
            b';' => return i + 1,
            b',' if !is_item => return i + 1,
            b')' | b']' | b'}' => return i,
            _ => {}
        }
        i += 1;
    }
    code.len()
}

fn is_field(item: &str) -> bool {
    let item = item.strip_prefix("pub").unwrap_or(item).trim_start();
    let item = if item.starts_with('(') { item[closing(item, 0)..].trim_start() } else { item };
    let name = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
    let rest = item[name..].trim_start();
    rest.starts_with(':') && !rest.starts_with("::")
}

fn is_test_attribute(attribute: &str) -> bool {
    let inner: String = attribute.split_whitespace().collect();
    ["#[cfg(test)]", "#[cfg(all(test,", "#![cfg(test)]"].iter().any(|a| inner.starts_with(a))
        || inner == "#[test]"
}

/// Blanked code without what only tests compile, and the modules in files of their own that only tests compile.
pub fn production(code: &str) -> (String, Vec<String>) {
    let mut out = code.as_bytes().to_vec();
    let mut modules = vec![];
    let mut from = 0;
    while let Some(at) = code[from..].find("#[").map(|n| from + n) {
        let mut end = closing(code, at + 1);
        if !is_test_attribute(&code[at..end]) {
            from = end;
            continue;
        }
        // The item's other attributes.
        loop {
            end += code[end..].len() - code[end..].trim_start().len();
            if !code[end..].starts_with("#[") {
                break;
            }
            end = closing(code, end + 1);
        }
        let item = &code[end..item_end(code, end)];
        if let Some(name) = module_in_file(item) {
            modules.push(name.to_owned());
        }
        end += item.len();
        for c in &mut out[at..end] {
            if *c != b'\n' {
                *c = b' ';
            }
        }
        from = end;
    }
    (String::from_utf8(out).expect("blanked code"), modules)
}

/// The name in `mod name;`, whatever its visibility.
pub fn module_in_file(item: &str) -> Option<&str> {
    let words = item.trim().strip_suffix(';')?;
    let (before, name) = words.rsplit_once(char::is_whitespace)?;
    (before.split_whitespace().next_back() == Some("mod")).then_some(name)
}

/// A source file of a crate, ready for the rules.
pub struct Source {
    /// From the repository's root.
    pub name: String,
    /// As it is.
    pub text: String,
    /// Without comments and literals, tests included.
    pub code: String,
    /// Without what only tests compile.
    pub production: String,
    /// Whether only tests compile the whole file: then `production` is empty.
    pub test_only: bool,
}

/// Reads a crate's files. A module that is declared for tests only is one with all that is below it.
pub fn sources(files: Vec<(String, String)>) -> Vec<Source> {
    let mut tests: Vec<String> = vec![];
    let mut all: Vec<Source> = files
        .into_iter()
        .map(|(name, text)| {
            let code = blank(&text);
            let (production, modules) = production(&code);
            let folder = folder(&name);
            for m in modules {
                tests.extend([format!("{folder}/{m}.rs"), format!("{folder}/{m}/")]);
            }
            // `#[path]` names a file beside this one.
            for path in text.split("#[path = \"").skip(1) {
                let (path, rest) = path.split_once('"').unwrap_or((path, ""));
                if rest.lines().take(3).any(|l| l.trim().starts_with("mod tests")) {
                    let beside = name.rsplit_once('/').map_or("", |n| n.0);
                    tests.push(format!("{beside}/{path}"));
                }
            }
            Source { name, text, code, production, test_only: false }
        })
        .collect();
    for s in &mut all {
        if tests.iter().any(|t| s.name == *t || t.ends_with('/') && s.name.starts_with(t)) {
            s.production.clear();
            s.test_only = true;
        }
    }
    all
}

/// Each line of `code` with its number.
pub fn numbered(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().map(|(i, l)| (i + 1, l))
}

/// The numbers of the lines in which a comment reaches beyond `width` columns. A row of a table cannot be broken.
pub fn wide_comments(text: &str, width: usize) -> Vec<usize> {
    let code = blanked(text, false);
    text.lines()
        .zip(code.lines())
        .enumerate()
        .filter(|(_, (line, code))| {
            let commented = line.trim_end().len() > code.trim_end().len();
            line.chars().count() > width && commented && !is_row(line)
        })
        .map(|(i, _)| i + 1)
        .collect()
}

fn is_row(line: &str) -> bool {
    line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|')
}

/// The folder in which a file's child modules lie.
pub fn folder(name: &str) -> &str {
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    match stem.rsplit_once('/') {
        Some((dir, "mod" | "lib" | "main")) => dir,
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::{blank, production, sources, wide_comments};

    #[test]
    fn comments_and_literals_are_blanked() {
        let text = r###"a(b"/*", '"', '\'', "\"//"); // c 'x
/* d /* e */ " */ f::<'g>(r#"h"#, br"i", r"\"); let r#type = 1;"###;
        let code = blank(text);
        assert_eq!(code.len(), text.len());
        let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
        assert_eq!(words, ["a", "b", "f", "g", "b", "let", "r", "type", "1"]);
    }

    #[test]
    fn what_follows_tests_is_guarded() {
        let code = "fn a() {}\n#[cfg(test)]\nmod t { fn b() {} }\nfn c() {}\nstruct S {\n #[cfg(test)]\n pub d: u8,\n e: u8 }\n\
                    #[cfg(test)]\n#[path = \"\"]\nmod tests;\n#[cfg(not(test))]\nfn g() {}\n\
                    #[cfg(test)] fn h(i: [u8; 2]) -> u8 { 1 }\nfn j() {}";
        let (left, modules) = production(code);
        for (name, stays) in [
            ("a", true),
            ("b", false),
            ("c", true),
            ("d:", false),
            ("e:", true),
            ("g", true),
            ("h", false),
            ("j", true),
        ] {
            let name = if name.ends_with(':') { name.to_string() } else { format!("fn {name}(") };
            assert_eq!(left.contains(&name), stays, "{name} in {left}");
        }
        assert_eq!(modules, ["tests"]);
        assert_eq!(left.lines().count(), code.lines().count());
    }

    #[test]
    fn a_module_for_tests_is_no_production() {
        let files =
            [("src/a.rs", "#[cfg(test)]\nmod help;\nmod b;"), ("src/a/help.rs", "x"), ("src/a/b.rs", "y")];
        let all = sources(files.iter().map(|(n, t)| ((*n).into(), (*t).into())).collect());
        assert_eq!(all.iter().map(|s| s.test_only).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_wide_comment_is_found() {
        assert_eq!(
            wide_comments("// 345678\nf(\"//       \");\n  // 45678\n// 34567\n\"\n// 345678\"\n", 8),
            [1, 3]
        );
    }
}
