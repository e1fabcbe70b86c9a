//! Engine URIs: no text panics, and what is understood prints as text that means the same.

use engineswap::Config;
use engineswap::uri::{ENGINES, SimConfig, UringConfig};
use ringdb::fuzzing::Input;

const VALUES: [&str; 18] = [
    "",
    "=",
    "=on",
    "=off",
    "=0",
    "=1",
    "=2",
    "=128",
    "=4096",
    "=0,1",
    "=4294967296",
    "=-1",
    "=yes",
    "=%20",
    "=512",
    "=3m",
    "=on+fsync+fail+EIO",
    "=on%20read%26;%0A",
];

fn check(text: &str) {
    let Ok(config) = text.parse::<Config>() else { return };
    let printed = config.to_string();
    match printed.parse::<Config>() {
        Ok(again) => assert_eq!(again, config, "{text:?} prints as {printed:?}"),
        Err(e) => panic!("{text:?} prints as {printed:?}, which is refused: {e}"),
    }
}

/// The bytes as text, and as choices of names and values, which are more often right.
pub fn uri(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        check(text);
    }
    let mut input = Input::new(data);
    let mut text = ENGINES[usize::from(input.u8()) % ENGINES.len()].to_owned();
    let mut options: Vec<&str> = UringConfig::OPTIONS.to_vec();
    options.extend(["threads", "depth", ""]);
    if text == "sim" {
        options = SimConfig::OPTIONS.to_vec();
    }
    for i in 0..8 {
        if input.is_empty() {
            break;
        }
        text.push(if i == 0 { '?' } else { '&' });
        text.push_str(options[usize::from(input.u8()) % options.len()]);
        text.push_str(VALUES[usize::from(input.u8()) % VALUES.len()]);
    }
    check(&text);
}
