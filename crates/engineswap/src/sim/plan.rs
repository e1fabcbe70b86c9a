//! Fault plans: which calls on a simulated disk go wrong, and how.
//!
//! A plan is text, one rule a line (or after a `;`); `#` begins a comment:
//!
//! ```text
//! on OP[,OP...] [GLOB] [nth N | every N | after N | prob P] ACTION
//! ```
//!
//! | OP | the calls |
//! |---|---|
//! | `read`, `write` | transfers; a continuation and a retry are calls of their own |
//! | `fsync`, `fdatasync`, `sync_range`, `sync_dir` | syncs |
//! | `open`, `create` | opening a file that exists, or one that is made by it |
//! | `rename`, `unlink`, `link`, `mkdir`, `rmdir`, `stat`, `list` | names |
//! | `truncate`, `allocate`, `lock`, `map` | files |
//! | `store` | bytes written through a mapping; can only be cut at |
//! | `submit`, `wait` | a queue's calls |
//! | `any` | all that the action can happen to |
//!
//! GLOB (`*` and `?`) is compared with the file's present name, or with its whole path if it has a `/`. Quotes around
//! it are allowed. Each rule counts the calls that match it: `nth N` is the N-th only, `every N` each N-th, `after N`
//! all after the first N, `prob P` each with this probability (by the disk's seed); without it, all.
//!
//! | ACTION | what happens |
//! |---|---|
//! | `EIO`, `ENOSPC`, `EINTR`, `EAGAIN`, `ENOMEM`, ... | the call fails with it and does nothing; a failed sync gives
//! its data or names up: no later sync covers them. The word `fail` may stand before it |
//! | `short N` | a transfer moves N bytes at most |
//! | `torn` | a write puts some of its sectors there and fails with EIO |
//! | `lie` | a sync, or the durability of a durable write, is claimed and not done |
//! | `flip N` | bit N of what is read or written is the other way round |
//! | `bitrot N` | N bits of the file's stored bytes change, by the seed, before the call |
//! | `delay US` | the call takes so many microseconds longer, of the disk's own time |
//! | `ring` | the queue breaks: the call fails, and what is in flight may be done or not |
//! | `full BYTES` | the disk has so much room left from now on |
//! | `cut` | the power goes out during the call; see [`super::Disk::crash`] |

use std::path::Path;

use crate::{Error, ErrorKind, Result};

use crate::random::Random;

macro_rules! calls {
    ($($name:ident $text:literal),* $(,)?) => {
        /// A call on the disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Call { $($name),* }

        impl Call {
            /// All of them.
            pub const ALL: &'static [Call] = &[$(Call::$name),*];

            /// Its name in plans.
            pub fn name(self) -> &'static str {
                match self { $(Call::$name => $text),* }
            }
        }
    };
}

calls! {
    Read "read", Write "write", Fsync "fsync", Fdatasync "fdatasync", SyncRange "sync_range", SyncDir "sync_dir",
    Open "open", Create "create", Rename "rename", Unlink "unlink", Link "link", Mkdir "mkdir", Rmdir "rmdir",
    Stat "stat", List "list", Truncate "truncate", Allocate "allocate", Lock "lock", Map "map", Store "store",
    Submit "submit", Wait "wait",
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Calls(u32);

impl Calls {
    fn of(list: &[Call]) -> Calls {
        Calls(list.iter().fold(0, |m, c| m | 1 << *c as u32))
    }

    fn has(self, call: Call) -> bool {
        self.0 & 1 << call as u32 != 0
    }
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Errno(i32),
    Short(u64),
    Torn,
    Lie,
    Flip(u64),
    BitRot(u64),
    Delay(u64),
    Ring,
    Full(u64),
    Cut,
}

impl Action {
    /// Its kind, for the counts.
    pub fn name(self) -> String {
        match self {
            Action::Errno(e) => ERRNOS
                .iter()
                .find(|(_, n)| *n == e)
                .map_or_else(|| e.to_string(), |(name, _)| name.to_string()),
            Action::Short(_) => "short".into(),
            Action::Torn => "torn".into(),
            Action::Lie => "lie".into(),
            Action::Flip(_) => "flip".into(),
            Action::BitRot(_) => "bitrot".into(),
            Action::Delay(_) => "delay".into(),
            Action::Ring => "ring".into(),
            Action::Full(_) => "full".into(),
            Action::Cut => "cut".into(),
        }
    }

    /// What it can happen to.
    fn calls(self) -> Calls {
        use Call::*;
        match self {
            Action::Short(_) | Action::Flip(_) => Calls::of(&[Read, Write]),
            Action::Torn => Calls::of(&[Write]),
            Action::Lie => Calls::of(&[Write, Fsync, Fdatasync, SyncRange, SyncDir]),
            Action::BitRot(_) => {
                Calls::of(&[Read, Write, Fsync, Fdatasync, SyncRange, Open, Truncate, Allocate, Map])
            }
            Action::Ring => Calls::of(&[Submit, Wait]),
            Action::Cut => Calls::of(Call::ALL),
            Action::Errno(_) | Action::Delay(_) | Action::Full(_) => {
                Calls(Calls::of(Call::ALL).0 & !(1 << Store as u32))
            }
        }
    }
}

/// The errors that plans can name.
const ERRNOS: [(&str, i32); 25] = [
    ("EIO", libc::EIO),
    ("ENOSPC", libc::ENOSPC),
    ("EINTR", libc::EINTR),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EDQUOT", libc::EDQUOT),
    ("EROFS", libc::EROFS),
    ("EMFILE", libc::EMFILE),
    ("ENFILE", libc::ENFILE),
    ("EACCES", libc::EACCES),
    ("EPERM", libc::EPERM),
    ("EFBIG", libc::EFBIG),
    ("EXDEV", libc::EXDEV),
    ("ENOENT", libc::ENOENT),
    ("EEXIST", libc::EEXIST),
    ("EBUSY", libc::EBUSY),
    ("EINVAL", libc::EINVAL),
    ("ENODEV", libc::ENODEV),
    ("ENXIO", libc::ENXIO),
    ("ENOSYS", libc::ENOSYS),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("ESTALE", libc::ESTALE),
    ("EREMOTEIO", libc::EREMOTEIO),
    ("EILSEQ", libc::EILSEQ),
    ("ETIMEDOUT", libc::ETIMEDOUT),
];

#[derive(Clone, Copy, PartialEq)]
enum When {
    Always,
    Nth(u64),
    Every(u64),
    After(u64),
    Prob(f64),
}

#[derive(Clone, PartialEq)]
struct Rule {
    calls: Calls,
    glob: Option<String>,
    when: When,
    action: Action,
    matched: u64,
}

/// Which calls go wrong, and how: see the [module](self) for the language.
#[derive(Clone, Default, PartialEq)]
pub struct Plan {
    rules: Vec<Rule>,
}

fn bad(line: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidInput, "fault plan", format!("'{}': {why}", line.trim()))
}

impl Plan {
    /// No faults.
    pub fn none() -> Plan {
        Plan::default()
    }

    /// Reads a plan.
    pub fn parse(text: &str) -> Result<Plan> {
        let lines = text.split(['\n', ';']).map(|l| l.split('#').next().unwrap_or(""));
        let rules: Result<_> = lines.filter(|l| !l.trim().is_empty()).map(rule).collect();
        Ok(Plan { rules: rules? })
    }

    /// The same and the rules of `other`, which come after these.
    pub fn and(mut self, other: Plan) -> Plan {
        self.rules.extend(other.rules);
        self
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What happens to this call: all delays and such, and the first action that ends the matter.
    pub(crate) fn strike(&mut self, call: Call, path: &Path, random: &mut Random) -> Vec<Action> {
        let mut out = Vec::new();
        let mut settled = false;
        for r in &mut self.rules {
            if !r.calls.has(call) || r.glob.as_ref().is_some_and(|g| !matches(g, path)) {
                continue;
            }
            r.matched += 1;
            let now = match r.when {
                When::Always => true,
                When::Nth(n) => r.matched == n,
                When::Every(n) => r.matched % n == 0,
                When::After(n) => r.matched > n,
                When::Prob(p) => (random.next() >> 11) as f64 / (1u64 << 53) as f64 <= p,
            };
            let besides = matches!(r.action, Action::Delay(_) | Action::BitRot(_) | Action::Full(_));
            if now && (besides || !settled) {
                settled |= !besides;
                out.push(r.action);
            }
        }
        out
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plan({} rules)", self.rules.len())
    }
}

fn rule(line: &str) -> Result<Rule> {
    let mut words = line.split_whitespace().map(|w| w.trim_matches(['"', '\''])).peekable();
    if words.next() != Some("on") {
        return Err(bad(line, "a rule begins with 'on'"));
    }
    let names = words.next().ok_or_else(|| bad(line, "on what?"))?;
    let any = names == "any";
    let mut calls = Calls(if any { u32::MAX } else { 0 });
    for name in names.split(',').filter(|_| !any) {
        let call = Call::ALL.iter().find(|c| c.name() == name).ok_or_else(|| {
            let all: Vec<_> = Call::ALL.iter().map(|c| c.name()).collect();
            bad(line, format!("no operation '{name}'; there are any, {}", all.join(", ")))
        })?;
        calls.0 |= Calls::of(&[*call]).0;
    }
    let is_when = |w: &str| matches!(w, "nth" | "every" | "after" | "prob");
    let mut glob = None;
    if let Some(w) = words.peek().copied()
        && !is_when(w)
        && !is_action(w)
    {
        glob = words.next().map(String::from);
    }
    let mut when = When::Always;
    if let Some(word) = words.next_if(|w| is_when(w)) {
        let value = words.next().ok_or_else(|| bad(line, format!("'{word}' takes a number")))?;
        let count = || value.parse::<u64>().ok().filter(|n| *n > 0 || word == "after");
        let count = || count().ok_or_else(|| bad(line, format!("'{word}' takes a number, not '{value}'")));
        when = match word {
            "nth" => When::Nth(count()?),
            "every" => When::Every(count()?),
            "after" => When::After(count()?),
            _ => When::Prob(
                value
                    .parse()
                    .ok()
                    .filter(|p| (0.0..=1.0).contains(p))
                    .ok_or_else(|| bad(line, "'prob' takes a number from 0 to 1"))?,
            ),
        };
    }
    if let (Some(word), None, When::Always) = (&glob, words.peek(), when) {
        return Err(bad(line, format!("'{word}' is no action; there are {}", valid_actions())));
    }
    let action = action(line, &mut words)?;
    if let Some(more) = words.next() {
        return Err(bad(line, format!("'{more}' is too much")));
    }
    let can = action.calls();
    match any {
        true => calls.0 &= can.0,
        false if calls.0 & !can.0 != 0 => return Err(bad(line, "this cannot happen to this operation")),
        false => {}
    }
    Ok(Rule { calls, glob, when, action, matched: 0 })
}

const ACTIONS: [&str; 10] =
    ["fail", "short", "torn", "lie", "flip", "bitrot", "delay", "ring", "full", "cut"];

fn is_action(w: &str) -> bool {
    ACTIONS.contains(&w) || ERRNOS.iter().any(|(name, _)| *name == w)
}

fn valid_actions() -> String {
    format!("an error such as EIO, or {}", ACTIONS.join(", "))
}

fn action<'a>(line: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<Action> {
    let mut word = words.next().ok_or_else(|| bad(line, format!("what happens? {}", valid_actions())))?;
    if word == "fail" {
        word = words.next().ok_or_else(|| bad(line, "'fail' takes an error such as EIO"))?;
        if ACTIONS.contains(&word) {
            return Err(bad(line, "'fail' takes an error such as EIO"));
        }
    }
    let mut number = || {
        let value = words.next().unwrap_or("");
        let (digits, unit) = match value.as_bytes().last() {
            Some(b'k') => (&value[..value.len() - 1], 1 << 10),
            Some(b'm') => (&value[..value.len() - 1], 1 << 20),
            _ => (value, 1),
        };
        let n = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
        n.ok_or_else(|| bad(line, format!("'{word}' takes a number, not '{value}'")))
    };
    Ok(match word {
        "short" => match number()? {
            0 => {
                return Err(bad(
                    line,
                    "a transfer of nothing is the end of the file; 'short' takes 1 or more",
                ));
            }
            n => Action::Short(n),
        },
        "torn" => Action::Torn,
        "lie" => Action::Lie,
        "flip" => Action::Flip(number()?),
        "bitrot" => Action::BitRot(number()?),
        "delay" => Action::Delay(number()?),
        "ring" => Action::Ring,
        "full" => Action::Full(number()?),
        "cut" => Action::Cut,
        name => match ERRNOS.iter().find(|(n, _)| *n == name) {
            Some((_, e)) => Action::Errno(*e),
            None => return Err(bad(line, format!("'{name}' is no action; there are {}", valid_actions()))),
        },
    })
}

/// Whether a file's name, or its path if the pattern has a `/`, is of the pattern.
fn matches(glob: &str, path: &Path) -> bool {
    let text = match glob.contains('/') {
        true => path.to_string_lossy(),
        false => path.file_name().unwrap_or_default().to_string_lossy(),
    };
    like(glob.as_bytes(), text.as_bytes())
}

fn like(glob: &[u8], text: &[u8]) -> bool {
    // Where the last star was, and how much of the text it has eaten.
    let (mut g, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => (g, t) = (g + 1, t + 1),
            _ => match star {
                Some((s, eaten)) => {
                    star = Some((s, eaten + 1));
                    (g, t) = (s + 1, eaten + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn struck(plan: &str, calls: &[(Call, &str)]) -> Vec<Vec<Action>> {
        let mut p = Plan::parse(plan).unwrap();
        calls.iter().map(|(c, path)| p.strike(*c, Path::new(path), &mut Random(1))).collect()
    }

    #[test]
    fn rules_count_what_matches_them() {
        let w = (Call::Write, "/d/a.sst");
        let eio = vec![Action::Errno(libc::EIO)];
        let got = struck(
            "on write \"*.sst\" nth 2 EIO",
            &[w, (Call::Write, "/d/a.log"), (Call::Read, "/d/a.sst"), w, w],
        );
        assert_eq!(got, [vec![], vec![], vec![], eio.clone(), vec![]]);
        assert_eq!(
            struck("on write every 2 fail EIO", &[w, w, w, w]),
            [vec![], eio.clone(), vec![], eio.clone()]
        );
        assert_eq!(struck("on write /d/* after 1 EIO", &[w, w, w]), [vec![], eio.clone(), eio.clone()]);
        assert_eq!(struck("on read,write prob 1 EIO # always", &[w])[0], eio);
        assert_eq!(struck("on read,write prob 0 EIO", &[w, w]), [vec![], vec![]]);
        // The first wins; what happens besides, happens too.
        let got = struck("on any delay 5; on write short 100\non write EIO", &[w]);
        assert_eq!(got, [[Action::Delay(5), Action::Short(100)]]);
    }

    #[test]
    fn any_is_what_the_action_can_happen_to() {
        let calls: Vec<_> = Call::ALL.iter().map(|c| (*c, "/f")).collect();
        let hit = |plan| struck(plan, &calls).iter().filter(|a| !a.is_empty()).count();
        assert_eq!((hit("on any EIO"), hit("on any cut")), (Call::ALL.len() - 1, Call::ALL.len()));
        assert_eq!((hit("on any short 1"), hit("on any torn"), hit("on any ring")), (2, 1, 2));
    }

    #[test]
    fn mistakes_say_what_is_valid() {
        for (plan, part) in [
            ("write EIO", "begins with 'on'"),
            ("on", "on what"),
            ("on scribble EIO", "there are any, read, write"),
            ("on write", "what happens?"),
            ("on write *.sst EWHAT", "no action; there are an error such as EIO, or fail, short"),
            ("on write nth 0 EIO", "'nth' takes a number, not '0'"),
            ("on write nth", "'nth' takes a number"),
            ("on write prob 2 EIO", "from 0 to 1"),
            ("on fsync torn", "cannot happen"),
            ("on store EIO", "cannot happen"),
            ("on write short 0", "1 or more"),
            ("on write short", "takes a number, not ''"),
            ("on write EIO EIO", "'EIO' is too much"),
            ("on write fail torn", "takes an error"),
        ] {
            let e = Plan::parse(plan).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            assert!(e.to_string().contains(part), "{plan}: {e}");
        }
        assert!(Plan::parse("# nothing\n\n ; ").unwrap().is_empty());
    }

    #[test]
    fn globs() {
        for (glob, path, want) in [
            ("*.sst", "/a/b.sst", true),
            ("*.sst", "/a/b.sst.tmp", false),
            ("a*b*c", "/aXXbYYbZZc", true),
            ("a*b*c", "/aXXbYYbZZ", false),
            ("???.log", "/001.log", true),
            ("???.log", "/0001.log", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/x/a/b/c", false),
            ("*", "/", true),
        ] {
            assert_eq!(matches(glob, Path::new(path)), want, "{glob} {path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(s in "(on |nth |every |prob |write |any |EIO|short |3|0.5|\\*|;|\n|\"|\u{e9}|[a-z ]){0,12}") {
            if let Ok(mut p) = Plan::parse(&s) {
                p.strike(Call::Write, Path::new("/f"), &mut Random(1));
            }
        }
    }
}
