//! What programs do with an engine, so that an option that would do nothing in one is refused and not ignored.

use super::parse::bad;
use super::uring::Acts;
use super::{Config, UringConfig, UringOption};
use crate::Result;

/// What a program does with its engine besides transfers, syncs, batches and queues, which all do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// It registers memory ([`crate::Io::register_buffers`]).
    pub registered_buffers: bool,
    /// It reads into pools ([`crate::mem::ReadPool`]).
    pub pools: bool,
}

impl Uses {
    /// Everything that there is: no option is refused.
    pub const ALL: Uses = Uses { registered_buffers: true, pools: true };
}

impl Config {
    /// Refuses options that were turned on by name and would do nothing in a program that does only this, with the
    /// reason.
    pub fn check_uses(&self, uses: Uses) -> Result<()> {
        let Config::IoUring(c) = self else { return Ok(()) };
        let refused = |o: &UringOption| match o.acts {
            Acts::Always => None,
            Acts::OnRegisteredBuffers if uses.registered_buffers => None,
            Acts::OnRegisteredBuffers => {
                Some("it is for memory that a program registers, and this one registers none")
            }
            Acts::OnPools if uses.pools => None,
            Acts::OnPools => Some("it is for reads into pools, and this program has none"),
        };
        let asked = UringConfig::options().iter().filter(|o| c.flag(o.name) == Some(true));
        match asked.filter_map(|o| Some((o.name, refused(o)?))).next() {
            Some((name, why)) => Err(bad(format!("'{name}' would do nothing here: {why}; leave it out"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Io};

    #[test]
    fn an_option_that_would_do_nothing_is_refused() {
        let buffers = Uses { registered_buffers: true, ..Uses::default() };
        for (uri, uses, refused) in [
            ("io_uring?fixed_buffers", Uses::default(), Some("'fixed_buffers' would do nothing here")),
            ("io_uring?clone_buffers", Uses::default(), Some("'clone_buffers' would do nothing here")),
            ("io_uring?provided_buffers", buffers, Some("'provided_buffers' would do nothing here")),
            ("io_uring?fixed_buffers&clone_buffers", buffers, None),
            ("io_uring?provided_buffers&fixed_buffers", Uses::ALL, None),
            // Turned off they are as good as off.
            ("io_uring?fixed_buffers=off&clone_buffers=off&provided_buffers=off", Uses::default(), None),
            ("posix", Uses::default(), None),
        ] {
            match (uri.parse::<Config>().unwrap().check_uses(uses), refused) {
                (Ok(()), None) => {}
                (Err(e), Some(why)) => {
                    assert_eq!(e.kind(), ErrorKind::InvalidInput);
                    assert!(e.to_string().contains(why), "{uri}: {e}");
                }
                (got, want) => panic!("{uri}: {got:?}, not {want:?}"),
            }
        }
        let e = Io::from_uri_for("io_uring?fixed_buffers", Uses::default()).err().unwrap();
        assert!(e.to_string().contains("registers none"), "{e}");
    }
}
