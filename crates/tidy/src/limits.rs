//! `limits.txt`: what is over a limit today. A line is a kind, a number and a name. The numbers only go down:
//! what grows, what is new, and a line that says more than is there, fail alike.

/// The number and name of each line of `kind`.
pub fn listed(list: &str, kind: &str) -> Vec<(String, usize)> {
    list.lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| {
            let (k, rest) = l.split_once(' ')?;
            let (number, name) = rest.split_once(' ')?;
            Some((k, number, name))
        })
        .filter(|(k, ..)| *k == kind)
        .map(|(_, number, name)| (name.to_owned(), number.parse().expect("a number in limits.txt")))
        .collect()
}

/// What differs between the places that are over a limit and the list of them.
pub fn compare(kind: &str, list: &str, mut found: Vec<(String, usize)>) -> Vec<String> {
    let mut listed = listed(list, kind);
    listed.sort();
    found.sort();
    let mut out = vec![];
    for (name, number) in &found {
        match listed.iter().position(|l| l.0 == *name) {
            None => out.push(format!("{kind} {number} {name}: new")),
            Some(i) => {
                let (_, limit) = listed.remove(i);
                if limit < *number {
                    out.push(format!("{kind} {number} {name}: grew from {limit}"));
                } else if limit > *number {
                    out.push(format!(
                        "{kind} {number} {name}: smaller than its line in limits.txt ({limit}): lower that"
                    ));
                }
            }
        }
    }
    out.extend(
        listed
            .into_iter()
            .map(|(name, n)| format!("{kind} {n} {name}: gone: take its line out of limits.txt")),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn a_limit_goes_down_only() {
        let list = "# what\nfunction 90 a.rs f\nfunction 90 a.rs g\nfunction 90 a.rs h\nimport 1 a -> b\n";
        let found =
            vec![("a.rs f".into(), 90), ("a.rs g".into(), 91), ("a.rs h".into(), 89), ("b.rs i".into(), 81)];
        let told = compare("function", list, found);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[0].contains("g: grew from 90")
                && told[1].contains("h: smaller")
                && told[2].contains("i: new")
        );
        let told = compare("import", list, vec![]);
        assert!(told.len() == 1 && told[0].contains("gone"), "{told:?}");
    }
}
