//! How long functions are, from the line of `fn` to that of the closing bracket.

use crate::code::{Source, closing};

/// A function and its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line on which it begins.
    pub line: usize,
    /// Its lines.
    pub lines: usize,
}

/// The functions of blanked code that have a body.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = vec![];
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + 3..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(open) = body(rest) else { continue };
        if !name.is_empty() {
            let end = at + 3 + closing(rest, open);
            let line = code[..at].lines().count().max(1);
            found.push(Function { name, line, lines: code[at..end].lines().count() });
        }
    }
    found
}

/// Where the body opens: the first brace outside of parentheses; `None` for a declaration.
fn body(rest: &str) -> Option<usize> {
    let mut i = 0;
    while i < rest.len() {
        match rest.as_bytes()[i] {
            b'(' | b'[' => i = closing(rest, i) - 1,
            b'{' => return Some(i),
            // A comma within the angle brackets of a generic list ends nothing.
            b';' | b')' | b'}' if i > 0 => return None,
            _ => {}
        }
        i += 1;
    }
    None
}

/// The functions that are longer than `limit`, as "crate name", longest first.
pub fn long_functions(sources: &[Source], limit: usize) -> Vec<(String, usize)> {
    let mut found = vec![];
    for s in sources {
        for f in functions(&s.code).into_iter().filter(|f| f.lines > limit) {
            found.push((format!("{} {}", s.name, f.name), f.lines));
        }
    }
    found.sort_by_key(|f| std::cmp::Reverse(f.1));
    found
}

#[cfg(test)]
mod tests {
    use super::functions;
    use crate::code::blank;

    #[test]
    fn lines_of_functions() {
        let code = blank(
            "fn a(f: impl Fn() -> [u8; 2]) {\n    // }\n    \"}\";\n}\ntrait T {\n    fn no(&self);\n    fn b<A, B>(&self)\n    where\n        A: B,\n    {}\n}\n",
        );
        let found: Vec<(String, usize, usize)> =
            functions(&code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("a".into(), 1, 4), ("b".into(), 7, 4)]);
    }
}
