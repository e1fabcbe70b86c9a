//! Rules of the pages: numbers without holes, links and headings, and names that are in the code.

use crate::code::Source;
use crate::functions::functions;

/// What is wrong with the numbers of a folder's pages, `NNNN-name.md`. A number that is missing has to stand
/// in the index, in a line that says "never existed".
pub fn numbers(names: &[String], index: &str) -> Vec<String> {
    let mut found = vec![];
    let mut numbers = vec![];
    for name in names.iter().filter(|n| n.as_str() != "README.md") {
        match name.get(..4).and_then(|n| n.parse::<u32>().ok()) {
            Some(n) if numbers.contains(&n) => found.push(format!("{name}: its number is taken")),
            Some(n) => numbers.push(n),
            None => found.push(format!("{name}: no number")),
        }
        if !index.contains(&format!("({name})")) {
            found.push(format!("{name}: not in the index"));
        }
    }
    let holes: Vec<u32> = index
        .lines()
        .filter(|l| l.contains("never existed"))
        .flat_map(|l| l.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()))
        .collect();
    for n in 1..=numbers.iter().copied().max().unwrap_or(0) {
        match (numbers.contains(&n), holes.contains(&n)) {
            (false, false) => {
                found.push(format!("{n:04}: missing, and the index does not say that it never existed"))
            }
            (true, true) => found.push(format!("{n:04}: exists, and the index says that it never did")),
            _ => {}
        }
    }
    found
}

/// Where the relative links of a page lead: file, heading, or both.
pub fn links(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    let targets = outside.flat_map(|t| t.split("](").skip(1).map(|l| l.split(')').next().unwrap_or("")));
    targets.filter(|t| !t.is_empty() && !t.contains("://")).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
pub fn anchors(text: &str) -> Vec<String> {
    let outside = text.split("```").step_by(2);
    let headings = outside.flat_map(|t| t.lines().filter(|l| l.starts_with('#')));
    let names = headings.map(|l| l.trim_start_matches('#').trim().to_lowercase());
    let keep = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    names.map(|n| n.chars().filter(keep).map(|c| if c == ' ' { '-' } else { c }).collect()).collect()
}

/// The names in backticks of a page about the code that the code does not have: files (`db/mod.rs`), folders
/// (`db/`), functions (`Core::commit`, `install()`), types and constants (`LevelCursor`). A path is looked up
/// at its end; what follows a file's name in the same sentence is not tied to that file.
pub fn unknown_names(page: &str, sources: &[Source], paths: &[String]) -> Vec<String> {
    let mut outside = String::new();
    for (i, block) in page.split("```").enumerate() {
        if i % 2 == 0 {
            outside.push_str(block);
        }
    }
    let mut found = vec![];
    for name in outside.split('`').skip(1).step_by(2) {
        let known = if name.contains(' ') || name.contains("...") {
            true // a command, or a shape of one
        } else if name.contains('/')
            || [".rs", ".cc", ".h", ".c", ".md", ".toml"].iter().any(|e| name.ends_with(e))
        {
            let end = format!("/{name}");
            paths.iter().any(|p| {
                p == name || p.ends_with(&end) || format!("/{p}").contains(&end) && name.ends_with('/')
            })
        } else {
            named(name, sources)
        };
        if !known {
            found.push(name.to_owned());
        }
    }
    found
}

/// Whether the code defines `name`: `function`, `function()`, `Type::function`, `Type`, `CONSTANT`.
fn named(name: &str, sources: &[Source]) -> bool {
    let name = name.strip_suffix("()").unwrap_or(name);
    let (owner, last) = name.rsplit_once("::").map_or((None, name), |(o, l)| (Some(o), l));
    let owner = owner.map(|o| o.rsplit("::").next().unwrap_or(o));
    if !last.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return true; // not a name of the code
    }
    sources.iter().any(|s| {
        let here = defines(&s.code, last) || functions(&s.code).iter().any(|f| f.name == last);
        here && owner.is_none_or(|o| {
            // A method stands in a file that has an `impl` of its type, a function in its module's file.
            ["impl", "trait", "enum", "struct"].iter().any(|k| owns(&s.code, k, o))
                || s.name.ends_with(&format!("/{o}.rs"))
                || s.name.ends_with(&format!("/{o}/mod.rs"))
        })
    })
}

fn defines(code: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].trim_end();
        let keyword = before.rsplit(|c: char| !word(c)).next().unwrap_or("");
        !code[at + name.len()..].starts_with(word)
            && code[..at].ends_with(char::is_whitespace)
            && ["struct", "enum", "trait", "type", "const", "static", "fn", "mod", "macro_rules"]
                .contains(&keyword)
            || is_member(code, at, name)
    })
}

/// A variant or field stands at the beginning of its line.
fn is_member(code: &str, at: usize, name: &str) -> bool {
    let line = code[..at].rsplit('\n').next().unwrap_or("");
    let line = line.trim().trim_start_matches("pub(crate)").trim_start_matches("pub").trim();
    line.is_empty() && code[at + name.len()..].starts_with([',', ':', '(', ' '])
}

fn owns(code: &str, keyword: &str, owner: &str) -> bool {
    code.match_indices(keyword).any(|(at, _)| {
        let head = code[at..].split(['{', ';']).next().unwrap_or("");
        head.split(|c: char| !c.is_alphanumeric() && c != '_').skip(1).any(|w| w == owner)
    })
}

#[cfg(test)]
mod tests {
    use super::{anchors, links, numbers, unknown_names};
    use crate::code::sources;

    #[test]
    fn a_hole_a_double_and_a_page_outside_of_the_index_are_found() {
        let names = ["0001-a.md", "0003-b.md", "0003-c.md", "0005-d.md", "README.md"].map(String::from);
        let found = numbers(
            &names,
            "[1](0001-a.md) [3](0003-b.md) [3](0003-c.md)\n2 never existed, nor did 1: never existed",
        );
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("0003-c.md: its number is taken"));
        assert!(found[1].contains("0005-d.md: not in the index"));
        assert!(found[2].contains("0001: exists") && found[3].contains("0004: missing"));
    }

    #[test]
    fn links_and_headings_are_read() {
        let page = "# One `two`, three\n[a](b.md#c) [d](https://e.org) [f](#g)\n```\n# no heading [h](i)\n```\n## J_k l";
        assert_eq!(links(page), ["b.md#c", "#g"]);
        assert_eq!(anchors(page), ["one-two-three", "j_k-l"]);
    }

    #[test]
    fn a_name_that_the_code_has_not_is_found() {
        let code = "pub struct Core { seq: u64 }\nimpl Core {\n    fn commit(&self) {}\n}\nconst LIMIT: u8 = 1;\nenum E {\n    Frame,\n}";
        let s = sources(vec![("crates/x/src/db/write.rs".into(), code.into())]);
        let paths = ["crates/x/src/db/write.rs".to_string()];
        let good = "`db/write.rs` `write.rs` `db/` `Core::commit` `commit()` `LIMIT` `Frame` `make test`\n```\n`nothing`\n```";
        assert_eq!(unknown_names(good, &s, &paths), [""; 0]);
        let bad = "`db/read.rs` `log/` `Core::publish` `Tree::commit` `publish()` `MAX`";
        assert_eq!(unknown_names(bad, &s, &paths).len(), 6);
    }
}
