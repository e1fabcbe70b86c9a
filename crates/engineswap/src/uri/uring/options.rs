//! The options of io_uring, each in one place: its name, the kernel that brought it, what it needs beside it and what
//! it excludes, and what it does. Parsing, printing, checks and refusals are made of this table; a test holds
//! README.md, the guide, fio-plugin/options.h and the fuzzers' dictionary against it.

use super::UringConfig;

/// One option.
pub struct UringOption {
    /// Its name in a URI.
    pub name: &'static str,
    /// The kernel that brought it; as old as the engine's own minimum if there is none.
    pub linux: Option<&'static str>,
    /// What it takes besides the kernel, as the end of "needs Linux 5.14".
    pub remedy: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// What has to be true of the others.
    pub(in crate::uri) rules: &'static [(Rule, &'static str)],
    /// What a program has to do for it to act.
    pub(in crate::uri) acts: Acts,
    pub(in crate::uri) field: Field,
}

/// A condition on another option, which it names.
pub(in crate::uri) enum Rule {
    /// That one is not off.
    Needs(&'static str),
    /// That one was not asked for.
    Excludes(&'static str),
}

/// For which programs an option does anything.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::uri) enum Acts {
    Always,
    /// For those that register memory.
    OnRegisteredBuffers,
    /// For those that read into pools.
    OnPools,
}

/// Where its value is.
pub(in crate::uri) enum Field {
    Depth,
    /// On where the kernel has it, unless it is named.
    Wish(fn(&mut UringConfig) -> &mut Option<bool>),
    /// Off unless it is named.
    Switch(fn(&mut UringConfig) -> &mut bool),
    /// A number from the first to the second.
    Number(u32, u32, fn(&mut UringConfig) -> &mut Option<u32>),
    Cpus,
}

use Acts::{Always, OnPools, OnRegisteredBuffers};
use Field::{Number, Switch, Wish};
use Rule::{Excludes, Needs};

/// The largest number of a CPU.
pub(in crate::uri) const MAX_CPU: u32 = 1023;

const fn option(name: &'static str, field: Field, help: &'static str) -> UringOption {
    UringOption { name, linux: None, remedy: "", help, rules: &[], acts: Always, field }
}

const fn since(linux: &'static str, option: UringOption) -> UringOption {
    UringOption { linux: Some(linux), ..option }
}

const fn with(rules: &'static [(Rule, &'static str)], option: UringOption) -> UringOption {
    UringOption { rules, ..option }
}

/// All of them.
pub(in crate::uri) const TABLE: &[UringOption] = &[
    option("depth", Field::Depth, "operations in flight at most, in each queue"),
    since(
        "6.0",
        option("single_issuer", Wish(|c| &mut c.single_issuer), "IORING_SETUP_SINGLE_ISSUER (on, off)"),
    ),
    with(
        &[
            (Needs("single_issuer"), ": the thread that waits does the work"),
            (Excludes("sqpoll"), ": there it is the polling thread that submits"),
        ],
        since(
            "6.1",
            option("defer_taskrun", Wish(|c| &mut c.defer_taskrun), "IORING_SETUP_DEFER_TASKRUN (on, off)"),
        ),
    ),
    with(
        &[(Excludes("sqpoll"), ": there it is the polling thread that completions go to")],
        since(
            "5.19",
            option("coop_taskrun", Wish(|c| &mut c.coop_taskrun), "IORING_SETUP_COOP_TASKRUN (on, off)"),
        ),
    ),
    since("6.6", option("no_sqarray", Wish(|c| &mut c.no_sqarray), "IORING_SETUP_NO_SQARRAY (on, off)")),
    since("5.18", option("submit_all", Wish(|c| &mut c.submit_all), "IORING_SETUP_SUBMIT_ALL (on, off)")),
    option("sqpoll", Switch(|c| &mut c.sqpoll), "a kernel thread takes the requests (on, off)"),
    with(
        &[(Needs("sqpoll"), "")],
        option(
            "sqpoll_idle_ms",
            Number(1, 60_000, |c| &mut c.sqpoll_idle_ms),
            "milliseconds after which that thread sleeps",
        ),
    ),
    with(
        &[(Needs("sqpoll"), "")],
        option("sqpoll_cpu", Number(0, MAX_CPU, |c| &mut c.sqpoll_cpu), "the CPU of that thread"),
    ),
    with(
        &[(Needs("sqpoll"), "")],
        option("sqpoll_share", Wish(|c| &mut c.sqpoll_share), "one such thread for all rings (on, off)"),
    ),
    option("iopoll", Switch(|c| &mut c.iopoll), "poll for completions (on, off)"),
    with(
        &[(Needs("iopoll"), "")],
        since(
            "6.13",
            option("hybrid_iopoll", Switch(|c| &mut c.hybrid_iopoll), "sleep before polling (on, off)"),
        ),
    ),
    with(
        &[(Excludes("iopoll"), ": workers and polling are two ways to do the same")],
        option(
            "force_async",
            Switch(|c| &mut c.force_async),
            "every request of a queue goes to a kernel worker (on, off)",
        ),
    ),
    option(
        "queue_always",
        Switch(|c| &mut c.queue_always),
        "lone operations and buffered writes go through the ring, too",
    ),
    UringOption {
        acts: OnRegisteredBuffers,
        ..option(
            "fixed_buffers",
            Wish(|c| &mut c.fixed_buffers),
            "the program's registered memory is registered with the rings (on, off)",
        )
    },
    UringOption {
        acts: OnRegisteredBuffers,
        ..with(
            &[(Needs("fixed_buffers"), ": there is nothing else to clone")],
            since(
                "6.12",
                option(
                    "clone_buffers",
                    Wish(|c| &mut c.clone_buffers),
                    "rings clone the registered memory from one ring (on, off)",
                ),
            ),
        )
    },
    since(
        "5.19",
        option("fixed_files", Wish(|c| &mut c.fixed_files), "files are registered with the rings (on, off)"),
    ),
    UringOption {
        acts: OnPools,
        ..with(
            &[(Excludes("iopoll"), ": what is polled for has its buffer from the start")],
            since(
                "5.19",
                option(
                    "provided_buffers",
                    Wish(|c| &mut c.provided_buffers),
                    "the kernel chooses the buffers of pools (on, off)",
                ),
            ),
        )
    },
    UringOption {
        remedy: " and at most 16 rings in a thread",
        ..since(
            "5.18",
            option("registered_ring", Wish(|c| &mut c.registered_ring), "IORING_REGISTER_RING_FDS (on, off)"),
        )
    },
    since(
        "5.15",
        option(
            "bounded_workers",
            Number(1, 65_535, |c| &mut c.bounded_workers),
            "the most kernel workers for files",
        ),
    ),
    since(
        "5.15",
        option(
            "unbounded_workers",
            Number(1, 65_535, |c| &mut c.unbounded_workers),
            "the most kernel workers for all else",
        ),
    ),
    UringOption {
        remedy: " and CPUs that this thread may use",
        ..since("5.14", option("worker_cpus", Field::Cpus, "the CPUs of kernel workers, as in 0-3+8"))
    },
    option("reap", Number(1, 4096, |c| &mut c.reap), "completions are waited for in groups of so many"),
    with(
        &[
            (Needs("reap"), ": it bounds the wait for a group"),
            (Excludes("iopoll"), ": polling does not sleep"),
        ],
        since(
            "6.12",
            option(
                "min_wait_us",
                Number(1, 10_000_000, |c| &mut c.min_wait_us),
                "the longest wait for a group, in microseconds",
            ),
        ),
    ),
];

/// The names alone.
pub(super) const NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut i = 0;
    while i < TABLE.len() {
        names[i] = TABLE[i].name;
        i += 1;
    }
    names
};

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::uri) enum Said {
    /// Asked for: on, or a number.
    Yes,
    /// Turned off, or a switch or number that was not named.
    No,
    /// Up to the kernel.
    Nothing,
}

impl UringOption {
    /// The option of this name, which is one of the table.
    pub(crate) fn named(name: &str) -> &'static UringOption {
        let found = TABLE.iter().find(|o| o.name == name);
        found.unwrap_or_else(|| unreachable!("no option '{name}'"))
    }

    /// What to say when the kernel refuses it: "reap needs Linux 5.1".
    pub(crate) fn needs(&self) -> String {
        format!("{} needs Linux {}{}", self.name, self.linux.unwrap_or("5.6"), self.remedy)
    }

    /// Whether it was asked for or turned off in `config`.
    pub(in crate::uri) fn said(&self, config: &UringConfig) -> Said {
        let mut config = config.clone();
        let yes = |yes| if yes { Said::Yes } else { Said::No };
        match &self.field {
            Field::Depth => Said::Yes,
            Field::Wish(of) => of(&mut config).map_or(Said::Nothing, yes),
            Field::Switch(of) => yes(*of(&mut config)),
            Field::Number(_, _, of) => yes(of(&mut config).is_some()),
            Field::Cpus => yes(!config.worker_cpus.is_empty()),
        }
    }

    /// Why it does not go with the others, if it does not.
    pub(in crate::uri) fn conflict(&self, config: &UringConfig) -> Option<String> {
        if self.said(config) != Said::Yes {
            return None;
        }
        let said = |name| UringOption::named(name).said(config);
        self.rules.iter().find_map(|(rule, why)| match rule {
            Rule::Needs(other) if said(other) == Said::No => {
                Some(format!("'{}' needs '{other}'{why}", self.name))
            }
            Rule::Excludes(other) if said(other) == Said::Yes => {
                Some(format!("'{}' excludes '{other}'{why}", self.name))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    #[test]
    fn the_guide_has_a_row_for_each_option_and_no_other() {
        let guide = read("docs/guide/src/engines.md");
        let section = guide.split("## Options of io_uring").nth(1).unwrap();
        let rows = section.split("\n#").next().unwrap().lines().filter_map(|l| l.strip_prefix("| `"));
        let mut named: Vec<&str> = rows
            .flat_map(|row| row.split(" | ").next().unwrap().split('`'))
            .map(|word| word.split('=').next().unwrap())
            .filter(|word| !word.trim_matches([',', ' ']).is_empty())
            .collect();
        let mut all = NAMES.to_vec();
        named.sort_unstable();
        all.sort_unstable();
        assert_eq!(named, all);
    }

    #[test]
    fn the_readme_says_which_kernel_brought_an_option() {
        let readme = read("README.md");
        let kernels: Vec<&str> =
            readme.lines().filter(|l| l.starts_with("| 5.") || l.starts_with("| 6.")).collect();
        for o in TABLE.iter().filter(|o| o.linux.is_some()) {
            let quoted = format!("`{}`", o.name);
            let told = kernels.iter().any(|l| l.contains(&quoted) && l.contains(o.linux.unwrap()));
            // Both limits of workers are told in one word.
            assert!(told || o.name.ends_with("bounded_workers"), "{} since {:?}", o.name, o.linux);
        }
    }

    #[test]
    fn fio_has_each_option_with_its_help() {
        let list = read("fio-plugin/options.h");
        for o in TABLE {
            // fio may say more of it.
            let start = format!("({}, \"", o.name);
            let said = |l: &&str| {
                l.strip_prefix("OPTION").or(l.strip_prefix("SWITCH")).is_some_and(|l| l.starts_with(&start))
            };
            let line = list.lines().find(said).unwrap_or_else(|| panic!("no {}", o.name));
            assert!(line.contains(&format!("io_uring: {}", o.help)), "{line}: {}", o.help);
        }
    }

    #[test]
    fn fuzzers_know_each_option() {
        let words = read("fuzz/dict/uri.dict");
        let missing: Vec<_> = NAMES.iter().filter(|n| !words.contains(&format!("\"{n}"))).collect();
        assert!(missing.is_empty(), "fuzz/dict/uri.dict lacks {missing:?}");
    }

    #[test]
    fn rules_name_options() {
        for o in TABLE {
            for (Rule::Needs(other) | Rule::Excludes(other), _) in o.rules {
                assert_ne!(UringOption::named(other).name, o.name);
            }
            assert!(o.needs().starts_with(o.name));
        }
    }
}
