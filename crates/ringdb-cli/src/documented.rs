//! The commands that README.md, CONTRIBUTING.md and the guide name, against the parser.

use clap::Parser;

use crate::args::Cli;

/// The files with commands.
fn pages() -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names: Vec<_> = ["README.md", "CONTRIBUTING.md"].map(|n| root.join(n)).into();
    names.extend(std::fs::read_dir(root.join("docs/guide/src")).unwrap().map(|e| e.unwrap().path()));
    names.into_iter().map(|n| (n.display().to_string(), std::fs::read_to_string(&n).unwrap())).collect()
}

/// The words of each call of `ringdb` in a line of shell, without what a shell does with its input and output.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or("");
    let commands = line.split(['|', ';', '>', '&']).map(str::trim);
    let calls =
        commands.filter_map(|c| c.strip_prefix("target/release/").unwrap_or(c).strip_prefix("ringdb "));
    calls.map(|c| c.split_whitespace().map(|w| w.trim_matches(['\'', '"']).to_string()).collect()).collect()
}

/// All calls in blocks of shell.
fn in_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2).filter_map(|b| b.split_once('\n'));
    let shell = blocks.filter(|(kind, _)| ["sh", "bash"].contains(kind));
    shell.flat_map(|(_, b)| b.replace("\\\n", " ").lines().map(str::to_string).collect::<Vec<_>>()).collect()
}

/// What the parser says of a call; files of settings and of keys are there.
fn parse(words: &[String]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.toml");
    std::fs::write(&file, "io = \"posix\"\n").unwrap();
    let keys = dir.path().join("keys");
    std::fs::write(&keys, format!("1 {}\n", "a".repeat(64))).unwrap();
    let mut words = words.to_vec();
    for i in 1..words.len() {
        match words[i - 1].as_str() {
            "--options" => words[i] = file.display().to_string(),
            "--key-file" => words[i] = keys.display().to_string(),
            _ => {}
        }
    }
    match Cli::try_parse_from(std::iter::once("ringdb".to_string()).chain(words)) {
        Ok(_) => Ok(()),
        Err(e) if !e.use_stderr() => Ok(()), // --help
        Err(e) => Err(e.to_string()),
    }
}

#[test]
fn every_command_of_the_pages_is_one() {
    let (mut wrong, mut seen) = (vec![], 0);
    for (name, text) in pages() {
        for call in in_blocks(&text).iter().flat_map(|line| calls(line)) {
            seen += 1;
            if let Err(e) = parse(&call) {
                wrong.push(format!("{name}: ringdb {}: {e}", call.join(" ")));
            }
        }
    }
    assert!(seen > 40, "{seen} commands found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_verb_and_flag_in_the_text_is_one() {
    use clap::CommandFactory;
    let cli = Cli::command();
    let mut wrong = vec![];
    for (name, text) in pages() {
        let prose: String = text.split("```").step_by(2).collect();
        for code in prose.split('`').skip(1).step_by(2).filter_map(|c| c.strip_prefix("ringdb ")) {
            let mut words = code.split_whitespace();
            let verb = words.next().unwrap_or("");
            let Some(verb) = cli.find_subcommand(verb).or((verb == "help").then_some(&cli)) else {
                wrong.push(format!("{name}: ringdb {code}"));
                continue;
            };
            let known = |flag: &str| verb.get_arguments().any(|a| a.get_long() == Some(flag));
            for flag in words.filter_map(|w| w.strip_prefix("--")).filter(|f| !known(f)) {
                wrong.push(format!("{name}: ringdb {code}: no --{flag}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_is_none_is_seen() {
    let line = "printf 'a\\tb\\n' | ringdb load --db fruit --fromat tsv # loads";
    let calls = calls(line);
    assert_eq!(calls, [["load", "--db", "fruit", "--fromat", "tsv"]]);
    assert!(parse(&calls[0]).is_err_and(|e| e.contains("--fromat")));
    assert!(parse(&["stats", "--db", "d", "--options", "none.toml"].map(String::from)).is_ok());
}
