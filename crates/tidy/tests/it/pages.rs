//! Pages: links, targets of make, numbers, names in ARCHITECTURE.md.

use std::path::Path;

use tidy::code::sources;
use tidy::pages::{anchors, links, numbers, unknown_names};
use tidy::{fail_if_any, files, is_rust, read, root};

fn is_page(p: &Path) -> bool {
    p.extension().is_some_and(|e| e == "md")
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let all = files("", is_page);
    let mut found = vec![];
    for (name, text) in &all {
        let dir = root().join(name).parent().expect("folder").to_path_buf();
        for link in links(text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if target.is_empty() { root().join(name) } else { dir.join(target) };
            let page = |t: &String| anchor.is_empty() || anchors(t).iter().any(|a| a == anchor);
            let leads = match std::fs::read_to_string(&path) {
                Ok(text) if path.extension().is_some_and(|e| e == "md") => page(&text),
                _ => path.exists() && anchor.is_empty(),
            };
            if !leads {
                found.push(format!("{name}: {link}"));
            }
        }
    }
    fail_if_any("a relative link names a file that exists, and a heading in it", found);
}

/// The table of README.md that sets ringdb beside others: no cell is empty, and each yes of ringdb has its example.
#[test]
fn what_ringdb_has_leads_to_its_example() {
    let readme = read("README.md");
    let table = readme.split("## Beside other stores").nth(1).expect("the table");
    let rows =
        table.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|'));
    let rows: Vec<Vec<&str>> =
        rows.map(|l| l.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert!(rows.len() > 20, "{} rows", rows.len());
    let whole = |r: &Vec<&str>| r.len() == 6 && r.iter().all(|c| !c.is_empty());
    let shown = |r: &Vec<&str>| r.get(1).is_some_and(|c| *c == "no" || c.starts_with("[yes]("));
    let wrong = rows.iter().filter(|r| !whole(r) || !shown(r)).map(|r| r.join(" | ")).collect();
    fail_if_any("each feature has six cells, and ringdb's is no or a yes with a link", wrong);
}

/// The guide is a book of its own: what a link of it leads to has to be in it. Other files are named in backticks.
#[test]
fn the_guide_links_to_itself_and_names_what_is_there() {
    let mut found = vec![];
    let sources = sources(files("crates", is_rust));
    for (name, text) in files("docs/guide/src", is_page) {
        found.extend(links(&text).iter().filter(|l| l.contains('/')).map(|l| format!("{name}: {l}")));
        let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let files = named.iter().filter(|n| {
            let ends = [".md", ".rs", ".c", ".h"].iter().any(|e| n.ends_with(e));
            ends && n.contains('/') && !n.contains(' ')
        });
        found.extend(files.filter(|n| !root().join(n).is_file()).map(|n| format!("{name}: {n}")));
        // What is called by the names of ringdb's own types; other stores have types, too.
        let ours =
            ["Db::", "Options::", "Error::", "Reads::", "Durability::", "Transaction::", "ReadOptions::"];
        let calls = named.iter().filter(|n| ours.iter().any(|o| n.starts_with(o)));
        let calls: String = calls.map(|n| format!("`{}` ", n.split('(').next().unwrap_or(n))).collect();
        found.extend(unknown_names(&calls, &sources, &[]).into_iter().map(|n| format!("{name}: {n}")));
    }
    fail_if_any("the guide links to its own pages, and names files and calls that exist", found);
}

#[test]
fn the_readme_names_real_targets() {
    let makefile = read("Makefile");
    let mut found = vec![];
    for (name, text) in files("", |p| p.extension().is_some_and(|e| e == "md")) {
        for part in text.split("`make ").skip(1) {
            let target = part.split(['`', ' ', '\n']).next().unwrap_or("");
            if !makefile.lines().any(|l| l.starts_with(&format!("{target}:"))) {
                found.push(format!("{name}: make {target}"));
            }
        }
    }
    fail_if_any("a make target that the documentation names exists", found);
}

#[test]
fn decisions_and_experiments_are_numbered_without_holes() {
    for folder in ["docs/decisions", "docs/experiments"] {
        let names: Vec<String> = files(folder, is_page)
            .into_iter()
            .map(|(n, _)| n.rsplit_once('/').map_or(n.clone(), |n| n.1.to_owned()))
            .collect();
        fail_if_any(folder, numbers(&names, &read(&format!("{folder}/README.md"))));
    }
}

#[test]
fn the_architecture_names_what_is_there() {
    let page = read("ARCHITECTURE.md");
    let paths: Vec<String> = files("", |p| {
        let ends = ["rs", "cc", "h", "c", "md", "toml", "txt"];
        p.extension().is_some_and(|e| ends.iter().any(|x| e == *x))
            && !p.to_string_lossy().contains("/target/")
    })
    .into_iter()
    .map(|f| f.0)
    .collect();
    assert!(page.matches("`").count() > 100, "ARCHITECTURE.md names files and functions in backticks");
    let found = unknown_names(&page, &sources(files("crates", is_rust)), &paths);
    fail_if_any("ARCHITECTURE.md names files and functions that exist", found);
}
