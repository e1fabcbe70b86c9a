//! How the command fails: what is printed and with which exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use ringdb::ErrorKind;

/// Result of a verb.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a verb ends early. As with grep, 1 is an answer and what is above it is none: 1 for "no", 2 for wrong
/// usage, 3 for part of a success, 4 for a failure.
#[derive(Debug)]
pub enum Failure {
    /// It was asked for something that makes no sense. Exit code 2.
    Usage(String),
    /// It could not be done. Exit code 4.
    Failed(String),
    /// The answer is "no" (an absent key, problems found) and has been printed. Exit code 1.
    Negative,
    /// Not all could be done; what could be is, and it has been said what could not. Exit code 3.
    Partial,
    /// The reader of standard output went away. Quiet, exit code 0.
    BrokenPipe,
    /// A signal asked it to end, and it has said how far it came. Exit code 128 and the signal's number, as in a shell.
    Interrupted(u8),
}

impl Failure {
    /// Prints the error and gives the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::Usage(m) => {
                warn(&m);
                ExitCode::from(2)
            }
            Failure::Failed(m) => {
                warn(&m);
                ExitCode::from(4)
            }
            Failure::Negative => ExitCode::from(1),
            Failure::Partial => ExitCode::from(3),
            Failure::BrokenPipe => ExitCode::SUCCESS,
            Failure::Interrupted(signal) => ExitCode::from(128 + signal),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(m) | Failure::Failed(m) => f.write_str(m),
            Failure::Negative => f.write_str("no"),
            Failure::Partial => f.write_str("in part"),
            Failure::BrokenPipe => f.write_str("broken pipe"),
            Failure::Interrupted(signal) => write!(f, "interrupted by signal {signal}"),
        }
    }
}

/// Says something on standard error. Nobody may be listening there: that is no reason to panic.
pub fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "ringdb: {message}");
}

/// A wrong use of the command.
pub fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure::Usage(message.into()))
}

/// Something that could not be done.
pub fn failed<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure::Failed(message.into()))
}

/// Whether no store can be made there, by what [`ringdb::Error::NoStore`] says.
fn occupied(detail: &str) -> bool {
    detail.starts_with("it holds something else") || detail.starts_with("it is not a directory")
}

impl From<ringdb::Error> for Failure {
    fn from(e: ringdb::Error) -> Failure {
        if let ringdb::Error::Invalid(what) = e {
            return Failure::Usage(what);
        }
        let todo = match (&e, e.kind()) {
            (ringdb::Error::Locked(_) | ringdb::Error::NewerFormat { .. }, _) => "",
            (ringdb::Error::NoStore { detail, .. }, _) if occupied(detail) => {
                "; --db takes the directory of a store, or a new or empty one"
            }
            (ringdb::Error::NoStore { .. }, _) => "; `ringdb put` or `ringdb load` make one",
            (_, ErrorKind::Retry) => "; mend the cause and try again",
            (_, ErrorKind::Repair) => {
                "; `ringdb verify` names everything that is wrong, `ringdb salvage` recovers what can be read"
            }
            _ => "",
        };
        Failure::Failed(format!("{e}{todo}"))
    }
}

impl From<ringdb::socket::Error> for Failure {
    fn from(e: ringdb::socket::Error) -> Failure {
        match e {
            ringdb::socket::Error::Usage(what) => Failure::Usage(what),
            e => Failure::Failed(e.to_string()),
        }
    }
}

impl From<engineswap::Error> for Failure {
    fn from(e: engineswap::Error) -> Failure {
        Failure::Failed(e.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Failed(e.to_string()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Failure {
        Failure::from(io::Error::from(e))
    }
}

/// Adds the path to an error of the file system.
pub fn at<T>(path: &std::path::Path, r: io::Result<T>) -> Result<T> {
    r.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Failed(format!("{}: {e}", path.display())),
    })
}
