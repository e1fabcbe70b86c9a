//! What a program is compiled against, as text: the declarations of a header, and what a C compiler makes of its
//! structs and constants.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::run;

/// The header's declarations, each on one line, without comments and directives.
fn declarations(header: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(header).unwrap();
    let code: String = text.split("/*").map(|p| p.split_once("*/").map_or(p, |(_, code)| code)).collect();
    let code = code.replace("\\\n", " ");
    let code: Vec<&str> = code.lines().filter(|l| !l.trim_start().starts_with('#')).collect();
    let code = code.join(" ").replace("extern \"C\" {", " ");
    let (mut out, mut depth, mut one) = (vec![], 0, String::new());
    for c in code.chars() {
        match c {
            '{' => depth += 1,
            // The end of extern "C" closes nothing.
            '}' if depth == 0 => continue,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                out.push(one.split_whitespace().collect::<Vec<_>>().join(" "));
                one.clear();
                continue;
            }
            _ => {}
        }
        one.push(c);
    }
    assert!(one.trim().is_empty(), "what is this? {one}");
    out
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// The functions that the header declares.
pub fn functions(header: &Path, library: &str) -> BTreeSet<String> {
    let prefix = format!("{library}_");
    let all = declarations(header);
    let of = all.iter().filter(|d| !d.starts_with("typedef") && !d.starts_with("enum"));
    let names = of.filter_map(|d| words(d.split('(').next()?).last().map(str::to_owned));
    names.inspect(|n| assert!(n.starts_with(&prefix), "{n}")).collect()
}

/// All of it: declarations as they are, structs with sizes and offsets, constants with values.
pub fn list(header: &Path, dir: &Path) -> String {
    let mut program = format!("#include \"{}\"\n#include <stdio.h>\nint main(void) {{\n", header.display());
    for d in declarations(header) {
        if d.starts_with("typedef struct") && d.contains('{') {
            layout(&d, &mut program);
        } else if d.starts_with("enum") {
            let inside = d.split_once('{').unwrap().1.trim_end_matches('}');
            for name in inside.split(',').filter_map(|c| words(c).next()) {
                writeln!(program, "printf(\"constant {name} %lld\\n\", (long long)({name}));").unwrap();
            }
        } else {
            writeln!(program, "puts(\"{d}\");").unwrap();
        }
    }
    for (name, _) in defines(header) {
        writeln!(program, "printf(\"constant {name} %lld\\n\", (long long)({name}));").unwrap();
    }
    program.push_str("return 0;\n}\n");
    let (source, exe) = (dir.join("list.c"), dir.join("list"));
    std::fs::write(&source, program).unwrap();
    run(Command::new("cc").arg("-std=c99").arg(&source).arg("-o").arg(&exe));
    run(&mut Command::new(&exe))
}

/// Macros with a value.
fn defines(header: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(header).unwrap();
    let all = text.lines().filter_map(|l| l.strip_prefix("#define ")?.split_once(' '));
    // An initialiser goes on in the next line.
    let all = all.filter(|(_, value)| !value.trim_end().ends_with('\\'));
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Prints a struct's size, and each field's place and size.
fn layout(declaration: &str, program: &mut String) {
    let (_, rest) = declaration.split_once('{').unwrap();
    let (fields, name) = rest.rsplit_once('}').unwrap();
    let name = name.trim();
    writeln!(program, "printf(\"struct {name} size %zu\\n\", sizeof({name}));").unwrap();
    for field in fields.split(';').filter(|f| !f.trim().is_empty()) {
        let what = words(field.split('[').next().unwrap()).last().unwrap();
        writeln!(
            program,
            "printf(\"field {name}.{what} at %zu size %zu: {}\\n\", offsetof({name}, {what}), sizeof((({name} *)0)->{what}));",
            field.trim()
        )
        .unwrap();
    }
}
