//! Which file of a crate uses which: paths that begin with `crate::`, `super::` or a child module, and the
//! circles that they make.
//!
//! A name that a module only passes on (`pub use`) counts as a use of the file that it comes from, so a
//! `mod.rs` that lists what its folder offers is in no circle by that. Production code only.

use std::collections::{BTreeMap, BTreeSet};

use crate::code::{Source, closing, folder};

/// The imports between the files of one crate, by index.
pub struct Imports {
    /// The files' names.
    pub names: Vec<String>,
    /// For each file, those that it uses.
    pub uses: Vec<BTreeSet<usize>>,
}

/// One crate's modules: a path of modules to its file.
struct Crate {
    modules: BTreeMap<Vec<String>, usize>,
    /// For each file, a name that it passes on, and the path that it has there.
    passed_on: Vec<BTreeMap<String, Vec<String>>>,
}

impl Imports {
    /// Of the crate whose `src` is `src` (with a slash at its end).
    pub fn of(src: &str, sources: &[Source]) -> Imports {
        let sources: Vec<&Source> =
            sources.iter().filter(|s| s.name.starts_with(src) && !s.test_only).collect();
        let modules = sources.iter().enumerate().map(|(i, s)| (module(src, &s.name), i)).collect();
        let mut all = Crate { modules, passed_on: vec![BTreeMap::new(); sources.len()] };
        let paths: Vec<Vec<Used>> = sources.iter().map(|s| all.paths(src, s)).collect();
        for (file, used) in paths.iter().enumerate() {
            for u in used.iter().filter(|u| u.passed_on) {
                if let Some(name) = u.path.last() {
                    all.passed_on[file].insert(name.clone(), u.path.clone());
                }
            }
        }
        let uses = paths.iter().enumerate().map(|(file, used)| all.files(file, used)).collect();
        Imports { names: sources.iter().map(|s| s.name.clone()).collect(), uses }
    }

    /// The circles: sets of files of which each uses each other, directly or through others. Largest first.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let reach: Vec<BTreeSet<usize>> = (0..self.uses.len()).map(|f| self.reached(f)).collect();
        let mut seen = BTreeSet::new();
        let mut circles = vec![];
        for f in 0..reach.len() {
            if reach[f].contains(&f) && !seen.contains(&f) {
                let circle: Vec<usize> =
                    reach[f].iter().copied().filter(|g| reach[*g].contains(&f)).collect();
                seen.extend(circle.iter().copied());
                circles.push(circle.into_iter().map(|g| self.names[g].as_str()).collect::<Vec<_>>());
            }
        }
        circles.sort_by_key(|c| std::cmp::Reverse(c.len()));
        circles.retain(|c| c.len() > 1);
        circles
    }

    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(f) = next.pop() {
            for g in &self.uses[f] {
                if seen.insert(*g) {
                    next.push(*g);
                }
            }
        }
        seen
    }
}

fn module(src: &str, name: &str) -> Vec<String> {
    let name = name.strip_prefix(src).unwrap_or(name);
    let path = match name {
        "lib.rs" | "main.rs" => "",
        _ => folder(name),
    };
    path.split('/').filter(|p| !p.is_empty()).map(str::to_owned).collect()
}

/// A path that a file uses, from the crate's root, and whether it is only passed on to others.
struct Used {
    path: Vec<String>,
    passed_on: bool,
}

impl Crate {
    fn paths(&self, src: &str, source: &Source) -> Vec<Used> {
        let code = source.production.as_str();
        let me = module(src, &source.name);
        let mut found = vec![];
        let children: Vec<String> = self
            .modules
            .keys()
            .filter(|m| m.len() == me.len() + 1 && m.starts_with(&me))
            .map(|m| format!("{}::", m[me.len()]))
            .collect();
        let inline = inline_modules(code);
        let starts = ["crate::", "super::", "self::"].into_iter().chain(children.iter().map(String::as_str));
        for start in starts {
            for (at, _) in code.match_indices(start) {
                let before = code[..at].trim_end_matches('$');
                if before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue; // a part of a longer name or path
                }
                let passed_on = is_passed_on(code, at);
                let within = inline.iter().filter(|m| m.1 < at && at < m.2).map(|m| m.0.clone());
                let me: Vec<String> = me.iter().cloned().chain(within).collect();
                for (path, name) in expand(&code[at..]) {
                    let path = absolute(&me, path);
                    // A name that the file uses itself too is a use.
                    let used_here = name.is_some_and(|n| words(code, &n) > 1);
                    found.push(Used { path, passed_on: passed_on && !used_here });
                }
            }
        }
        found
    }

    fn files(&self, file: usize, used: &[Used]) -> BTreeSet<usize> {
        used.iter().filter(|u| !u.passed_on).map(|u| self.file(&u.path, 4)).filter(|f| *f != file).collect()
    }

    /// The file that a path leads to, through at most `hops` modules that pass it on.
    fn file(&self, path: &[String], hops: usize) -> usize {
        let (len, file) = (0..=path.len())
            .rev()
            .find_map(|len| self.modules.get(&path[..len]).map(|f| (len, *f)))
            .expect("a crate has a root");
        match path.get(len).and_then(|name| self.passed_on[file].get(name)) {
            Some(next) if hops > 0 && *next != path => {
                let next: Vec<String> = next.iter().chain(&path[len + 1..]).cloned().collect();
                self.file(&next, hops - 1)
            }
            _ => file,
        }
    }
}

/// The modules that are written out in a file: name, beginning, end.
fn inline_modules(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = vec![];
    for (at, _) in code.match_indices("mod ") {
        let name: String = code[at + 4..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let open = at + 4 + name.len();
        if code[open..].trim_start().starts_with('{') {
            let open = open + code[open..].find('{').unwrap_or(0);
            found.push((name, open, closing(code, open)));
        }
    }
    found
}

fn words(code: &str, word: &str) -> usize {
    code.match_indices(word)
        .filter(|(at, _)| {
            let inside = |c: char| c.is_alphanumeric() || c == '_';
            !code[..*at].ends_with(inside) && !code[at + word.len()..].starts_with(inside)
        })
        .count()
}

/// Whether the path at `at` is that of a `pub use`.
fn is_passed_on(code: &str, at: usize) -> bool {
    let statement = code[..at].rsplit([';', '}']).next().unwrap_or("").trim_start();
    // Attributes stand before it.
    let statement = statement.rsplit(']').next().unwrap_or("").trim_start();
    statement.starts_with("pub") && statement.trim_end().ends_with("use")
}

/// All paths of an import tree, with the name each brings in; of `a::b::C::f(` in an expression only the one.
fn expand(code: &str) -> Vec<(Vec<String>, Option<String>)> {
    let mut path = vec![];
    let mut rest = code;
    loop {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        path.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
        match rest.strip_prefix("::") {
            Some(r) => rest = r.trim_start(),
            None => break,
        }
    }
    if rest.starts_with('{') {
        let inner = &rest[1..closing(rest, 0) - 1];
        let mut all = vec![];
        let (mut depth, mut from) = (0, 0);
        for (i, c) in inner.char_indices().chain([(inner.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    let part = inner[from..i].trim();
                    from = (i + 1).min(inner.len());
                    for (p, name) in if part.is_empty() { vec![] } else { expand(part) } {
                        let p = if p == ["self"] { vec![] } else { p };
                        all.push(([path.clone(), p].concat(), name));
                    }
                }
                _ => {}
            }
        }
        return all;
    }
    let name = match rest.strip_prefix("as ") {
        Some(renamed) => renamed.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned),
        None => path.last().cloned(),
    };
    vec![(path, name)]
}

fn absolute(me: &[String], path: Vec<String>) -> Vec<String> {
    let mut out = me.to_vec();
    let mut path = path.into_iter().peekable();
    if path.peek().is_some_and(|p| p == "crate") {
        out.clear();
        path.next();
    }
    while let Some(p) = path.next_if(|p| p == "self" || p == "super") {
        if p == "super" {
            out.pop();
        }
    }
    out.extend(path);
    out
}

#[cfg(test)]
mod tests {
    use super::Imports;
    use crate::code::sources;

    fn imports(files: &[(&str, &str)]) -> Imports {
        Imports::of("src/", &sources(files.iter().map(|(n, t)| ((*n).into(), (*t).into())).collect()))
    }

    #[test]
    fn a_circle_is_found() {
        let found = imports(&[
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "use crate::b::{self, B, deep::{C, D as E}};"),
            ("src/b/mod.rs", "mod deep;"),
            ("src/b/deep.rs", "mod inline { fn f() { super::super::super::c::g(); super::h() } }"),
            ("src/c.rs", "fn g() { crate::a::h(); }"),
        ]);
        assert_eq!(found.circles(), [["src/a.rs", "src/b/deep.rs", "src/c.rs"]]);
    }

    #[test]
    fn what_is_passed_on_tests_and_comments_make_no_circle() {
        let found = imports(&[
            ("src/lib.rs", "mod a; mod b; pub use a::A;"),
            ("src/a/mod.rs", "mod inner; pub(crate) use inner::{A, B};"),
            (
                "src/a/inner.rs",
                "// use crate::b::X;\nconst S: &str = \"crate::b::Y\"; #[cfg(test)] mod tests;",
            ),
            ("src/a/inner/tests.rs", "use crate::b::Z;"),
            ("src/b.rs", "use crate::A; #[cfg(test)] mod tests { use crate::a::A; }"),
        ]);
        assert_eq!(found.circles(), [[""; 0]; 0]);
        let b = found.names.iter().position(|n| n == "src/b.rs").expect("b");
        let inner = found.names.iter().position(|n| n == "src/a/inner.rs").expect("inner");
        assert!(found.uses[b].contains(&inner) && found.uses[b].len() == 1);
    }

    #[test]
    fn a_name_that_is_passed_on_and_used_is_a_use() {
        let found = imports(&[
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod inner; pub use inner::A; pub fn f(_: A) {}"),
            ("src/a/inner.rs", "use super::f;"),
        ]);
        assert_eq!(found.circles(), [["src/a/mod.rs", "src/a/inner.rs"]]);
    }
}
