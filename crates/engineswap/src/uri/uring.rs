//! The configuration of io_uring, made of the options in [`options`].

use std::fmt;

use self::options::{Field, MAX_CPU, Said};
use super::parse::{bad, flag, number, unknown};
use crate::Result;

mod options;

pub(super) use self::options::Acts;
pub use self::options::UringOption;

/// Options of the io_uring engine. A flag that is `None` is used where the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UringConfig {
    /// Operations in flight at most, in each queue.
    pub depth: u32,
    /// IORING_SETUP_SINGLE_ISSUER (Linux 6.0): only the queue's own thread may use the ring.
    pub single_issuer: Option<bool>,
    /// IORING_SETUP_DEFER_TASKRUN (Linux 6.1): completions are worked on when they are waited for; needs
    /// `single_issuer`.
    pub defer_taskrun: Option<bool>,
    /// IORING_SETUP_COOP_TASKRUN (Linux 5.19): a completion does not interrupt the thread.
    pub coop_taskrun: Option<bool>,
    /// IORING_SETUP_NO_SQARRAY (Linux 6.6).
    pub no_sqarray: Option<bool>,
    /// IORING_SETUP_SUBMIT_ALL (Linux 5.18): a request that is refused does not stop those after it.
    pub submit_all: Option<bool>,
    /// IORING_SETUP_SQPOLL: a thread of the kernel takes the requests, so that submitting is no system call. It
    /// wants a core of its own.
    pub sqpoll: bool,
    /// Milliseconds without work after which that thread sleeps; 20 if not given.
    pub sqpoll_idle_ms: Option<u32>,
    /// The CPU that it is bound to.
    pub sqpoll_cpu: Option<u32>,
    /// One such thread for all rings of the engine (IORING_SETUP_ATTACH_WQ), not one for each; `None` is on.
    pub sqpoll_share: Option<bool>,
    /// IORING_SETUP_IOPOLL: completions of direct reads and writes are polled for. The device needs polling queues.
    pub iopoll: bool,
    /// IORING_SETUP_HYBRID_IOPOLL (Linux 6.13): sleeps for a part of the expected time first; needs `iopoll`.
    pub hybrid_iopoll: bool,
    /// Every request goes to a worker thread of the kernel (IOSQE_ASYNC), buffered writes included.
    pub force_async: bool,
    /// Operations that are alone, and buffered writes of a queue, are requests of a ring, too: lone reads, appends,
    /// syncs, ranges and allocations, which are plain calls otherwise. Mappings are refused.
    pub queue_always: bool,
    /// Whether memory registered by [`crate::Io::register_buffers`] is used: `None` where the kernel allows it.
    pub fixed_buffers: Option<bool>,
    /// Rings clone their registered memory from one ring (Linux 6.12), so that it is counted and pinned once.
    pub clone_buffers: Option<bool>,
    /// Files are registered with the rings that they are used on (Linux 5.19). Off unless asked for; then without
    /// `single_issuer` and `defer_taskrun` unless these are asked for too: a ring of a single issuer lets go of a
    /// file that was closed only at the next call of its own thread.
    pub fixed_files: Option<bool>,
    /// The kernel chooses the buffers of a [`crate::mem::ReadPool`] (Linux 5.19), not the library when a read starts.
    pub provided_buffers: Option<bool>,
    /// IORING_REGISTER_RING_FDS (Linux 5.18): the ring is known to the kernel by a number.
    pub registered_ring: Option<bool>,
    /// The most workers for reads and writes of files and devices (Linux 5.15).
    pub bounded_workers: Option<u32>,
    /// The most workers for all else.
    pub unbounded_workers: Option<u32>,
    /// The CPUs that workers run on; empty for all (Linux 5.14). Like the limits it holds for all rings of a
    /// thread: it is the thread, not the ring, that has workers.
    pub worker_cpus: Vec<u32>,
    /// Completions are waited for in groups of so many, even by those who ask for fewer.
    pub reap: Option<u32>,
    /// The longest that a group is waited for, in microseconds, once those asked for are there (Linux 6.12).
    pub min_wait_us: Option<u32>,
}

impl Default for UringConfig {
    fn default() -> UringConfig {
        UringConfig {
            depth: 128,
            single_issuer: None,
            defer_taskrun: None,
            coop_taskrun: None,
            no_sqarray: None,
            submit_all: None,
            sqpoll: false,
            sqpoll_idle_ms: None,
            sqpoll_cpu: None,
            sqpoll_share: None,
            iopoll: false,
            hybrid_iopoll: false,
            force_async: false,
            queue_always: false,
            fixed_buffers: None,
            clone_buffers: None,
            fixed_files: None,
            provided_buffers: None,
            registered_ring: None,
            bounded_workers: None,
            unbounded_workers: None,
            worker_cpus: Vec::new(),
            reap: None,
            min_wait_us: None,
        }
    }
}

/// CPU numbers and ranges of them, joined by `+` (or, where a URI stands alone, by commas): `0+2`, `0-3+8`.
fn cpus(name: &str, value: Option<&str>) -> Result<Vec<u32>> {
    let cpu = |n: &str| n.parse().ok().filter(|n| *n <= MAX_CPU);
    let part = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(cpu(first)?..=cpu(last)?).filter(|r| !r.is_empty()),
        None => cpu(part).map(|n| n..=n),
    };
    let list: Option<Vec<_>> = value.and_then(|v| v.split(['+', ',']).map(part).collect());
    match list {
        Some(ranges) => {
            let mut all: Vec<u32> = ranges.into_iter().flatten().collect();
            all.sort_unstable();
            all.dedup();
            Ok(all)
        }
        None => Err(bad(format!(
            "'{name}' takes CPU numbers and ranges joined by '+', as in 0-3+8, not '{}'",
            value.unwrap_or("")
        ))),
    }
}

/// The same as text.
fn cpu_list(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[u32]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(text).collect::<Vec<_>>().join("+")
}

impl UringConfig {
    /// The options' names.
    pub const OPTIONS: [&'static str; options::NAMES.len()] = options::NAMES;

    /// What there is to say of each.
    pub fn options() -> &'static [UringOption] {
        options::TABLE
    }

    /// The same with an option of a URI: `with("sqpoll_idle_ms", Some("50"))`. Combinations are checked when the
    /// engine is opened ([`UringConfig::check`]).
    pub fn with(mut self, name: &str, value: Option<&str>) -> Result<UringConfig> {
        let Some(option) = options::TABLE.iter().find(|o| o.name == name) else {
            return Err(unknown("io_uring", name, &Self::OPTIONS.join(", ")));
        };
        match option.field {
            Field::Depth => self.depth = number(name, value, 1, 4096)?,
            Field::Wish(of) => *of(&mut self) = flag(name, value)?,
            Field::Switch(of) => *of(&mut self) = flag(name, value)? == Some(true),
            Field::Number(min, max, of) => *of(&mut self) = Some(number(name, value, min, max)?),
            Field::Cpus => self.worker_cpus = cpus(name, value)?,
        }
        Ok(self)
    }

    /// Refuses combinations that the kernel refuses or that would have no effect, with the reason.
    pub fn check(&self) -> Result<()> {
        match options::TABLE.iter().find_map(|o| o.conflict(self)) {
            Some(why) => Err(bad(why)),
            None => Ok(()),
        }
    }

    /// What was asked of a flag by its name; `None` also for what is no flag.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match UringOption::named(name).said(self) {
            Said::Yes => Some(true),
            Said::No => Some(false),
            Said::Nothing => None,
        }
    }
}

impl fmt::Display for UringConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "io_uring?depth={}", self.depth)?;
        let mut values = self.clone();
        for option in options::TABLE {
            let value = match option.field {
                Field::Wish(of) => *of(&mut values),
                Field::Switch(of) => Some(true).filter(|_| *of(&mut values)),
                _ => None,
            };
            match value {
                Some(true) => write!(f, "&{}", option.name)?,
                Some(false) => write!(f, "&{}=off", option.name)?,
                None => {}
            }
        }
        for option in options::TABLE {
            if let Field::Number(_, _, of) = option.field
                && let Some(n) = of(&mut values)
            {
                write!(f, "&{}={n}", option.name)?;
            }
        }
        if !self.worker_cpus.is_empty() {
            write!(f, "&worker_cpus={}", cpu_list(&self.worker_cpus))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn every_option_is_named_and_prints_back() {
        for name in UringConfig::OPTIONS {
            let values = [Some("1"), None];
            let c = values.iter().find_map(|v| UringConfig::default().with(name, *v).ok());
            let c = c.unwrap_or_else(|| panic!("{name} takes neither 1 nor nothing"));
            assert_ne!(c, UringConfig::default(), "{name} changes nothing");
            let text = c.to_string();
            assert!(text.contains(name), "{text} does not name {name}");
            let (_, query) = text.split_once('?').unwrap();
            let again = query.split('&').try_fold(UringConfig::default(), |c, o| match o.split_once('=') {
                Some((k, v)) => c.with(k, Some(v)),
                None => c.with(o, None),
            });
            assert_eq!(again.unwrap(), c);
        }
    }

    #[test]
    fn cpus_are_told_without_commas() {
        // A comma parts the URIs of a list.
        for (text, cpus, back) in [
            ("0", vec![0], "0"),
            ("0+1", vec![0, 1], "0-1"),
            ("0,2", vec![0, 2], "0+2"),
            ("4-6+1+9-9", vec![1, 4, 5, 6, 9], "1+4-6+9"),
            ("3+1-4", vec![1, 2, 3, 4], "1-4"),
        ] {
            let c = UringConfig::default().with("worker_cpus", Some(text)).unwrap();
            assert_eq!(c.worker_cpus, cpus);
            assert!(c.to_string().ends_with(&format!("&worker_cpus={back}")), "{c}");
            assert_eq!(UringConfig::default().with("worker_cpus", Some(back)).unwrap(), c);
        }
        for wrong in ["", "+", "0+", "2-1", "-1", "0-", "1024", "0-2000", "a", "0--1"] {
            assert!(UringConfig::default().with("worker_cpus", Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_excludes_each_other_is_refused_with_the_reason() {
        for (options, why) in [
            ("defer_taskrun&single_issuer=off", "needs 'single_issuer'"),
            ("sqpoll&defer_taskrun", "excludes 'sqpoll'"),
            ("sqpoll&coop_taskrun", "excludes 'sqpoll'"),
            ("sqpoll_idle_ms=5", "needs 'sqpoll'"),
            ("sqpoll_cpu=0", "needs 'sqpoll'"),
            ("sqpoll_share", "needs 'sqpoll'"),
            ("hybrid_iopoll", "needs 'iopoll'"),
            ("clone_buffers&fixed_buffers=off", "needs 'fixed_buffers'"),
            ("iopoll&force_async", "excludes 'iopoll'"),
            ("iopoll&provided_buffers", "excludes 'iopoll'"),
            ("min_wait_us=5", "needs 'reap'"),
            ("iopoll&reap=4&min_wait_us=5", "excludes 'iopoll'"),
        ] {
            let e = format!("io_uring?{options}").parse::<crate::Config>().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            assert!(e.to_string().contains(why), "{options}: {e}");
        }
    }
}
