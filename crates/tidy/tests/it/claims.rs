//! Every number of the README and of the guide is tied, in docs/claims.md, to what gives it.

use tidy::{files, read, root};

/// The prose of a page in one line: without blocks of code, code within lines, and where links lead.
fn prose(text: &str) -> String {
    let mut block = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            block = !block;
        } else if !block {
            kept.push_str(line);
            kept.push(' ');
        }
    }
    // Every second piece between backticks is code.
    let plain: String = kept.split('`').step_by(2).collect();
    let mut pieces = plain.split("](");
    let mut out = pieces.next().unwrap_or("").to_string();
    for piece in pieces {
        out.push(']');
        out.push_str(piece.split_once(')').map_or("", |p| p.1));
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The rows of the page: what the README says, and what is named beside it.
fn rows(page: &str) -> Vec<(String, String)> {
    let bar = "\u{0}";
    let cells = |line: &str| {
        let line = line.replace("\\|", bar);
        let mut cells =
            line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(|c| c.replace(bar, "|"));
        Some((cells.next()?, cells.next()?))
    };
    page.lines().filter_map(cells).skip(1).filter(|(first, _)| !first.starts_with("--")).collect()
}

/// Parts of `text` that no quote covers and that have a digit, with what is around them.
fn untied(text: &str, quotes: &[&str]) -> Vec<String> {
    let mut covered = vec![false; text.len()];
    for q in quotes {
        for (at, _) in text.match_indices(q) {
            covered[at..at + q.len()].fill(true);
        }
    }
    let mut found = vec![];
    let bytes = text.as_bytes();
    for i in 0..bytes.len() {
        // A number is told once, at its first digit.
        if bytes[i].is_ascii_digit() && !covered[i] && (i == 0 || !bytes[i - 1].is_ascii_digit()) {
            let from = (0..=i.saturating_sub(30)).rev().find(|j| text.is_char_boundary(*j)).unwrap_or(0);
            let to = (i + 30..).find(|j| *j >= text.len() || text.is_char_boundary(*j)).unwrap_or(i);
            found.push(text[from..to.min(text.len())].to_string());
        }
    }
    found
}

/// The README and the chapters of the guide.
fn pages() -> Vec<(String, String)> {
    let mut pages = files("docs/guide/src", |p| p.extension().is_some_and(|e| e == "md"));
    pages.push(("README.md".into(), read("README.md")));
    pages
}

#[test]
fn every_number_of_the_pages_has_its_source() {
    let claims = read("docs/claims.md");
    let rows = rows(&claims);
    assert!(rows.len() > 20, "docs/claims.md has {} rows", rows.len());
    let quotes: Vec<&str> = rows.iter().map(|(q, _)| q.as_str()).collect();
    let pages: Vec<_> = pages().into_iter().map(|(name, text)| (name, prose(&text), text)).collect();
    let said = |q: &str| pages.iter().any(|(_, prose, text)| prose.contains(q) || text.contains(q));
    let stale: Vec<&&str> = quotes.iter().filter(|q| !said(q)).collect();
    assert!(stale.is_empty(), "docs/claims.md has rows that no page says (any more): {stale:#?}");
    let found = |(name, prose, _): &(String, String, String)| -> Vec<String> {
        untied(prose, &quotes).into_iter().map(|n| format!("{name}: {n}")).collect()
    };
    let untied: Vec<String> = pages.iter().flat_map(found).collect();
    assert!(untied.is_empty(), "numbers without a row in docs/claims.md: {untied:#?}");
}

#[test]
fn every_source_exists() {
    let makefile = read("Makefile");
    for (quote, source) in rows(&read("docs/claims.md")) {
        let named: Vec<&str> = source.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "'{quote}' names neither a command nor a file");
        for name in named {
            let exists = match name.strip_prefix("make ") {
                Some(target) => makefile.contains(&format!("\n{target}:")),
                None => root().join(name).is_file(),
            };
            assert!(exists, "'{quote}': there is no {name}");
        }
        // A word in parentheses that looks like a name is one of a test or constant in the file.
        let words =
            source.split(['(', ')', ' ', ',', ';']).filter(|w| w.contains('_') && !w.contains(['/', '`']));
        let text: String =
            source.split('`').skip(1).step_by(2).filter(|n| n.contains('/')).map(read).collect();
        for word in words {
            assert!(text.contains(word), "'{quote}': {word} is not in what the row names");
        }
    }
}

#[test]
fn a_number_without_a_source_is_seen() {
    let text = prose("Gets are 3 times as fast, `5` code\n```sh\n6\n```\nsee [7](8/9) and 10 %.");
    assert_eq!(text, "Gets are 3 times as fast, code see [7] and 10 %.");
    assert_eq!(untied(&text, &["are 3 times", "[7]"]).len(), 1);
    assert_eq!(untied(&text, &["3 times", "[7] and 10 %"]), [""; 0]);
}
