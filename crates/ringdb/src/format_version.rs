//! [`FormatVersion`]: the versions of the store's format, which manifests, log segments and tables name.

/// A version of the format. Its number stands in the header of each manifest and log segment and in the footer of each
/// table. What each one brought is in docs/formats/README.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FormatVersion {
    V1 = 1,
    V2 = 2,
    /// What is encrypted.
    V3 = 3,
}

/// What a number that a file names as its version means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Known(FormatVersion),
    /// Of a newer build.
    Newer(u32),
    /// No build has written it.
    Never,
}

impl FormatVersion {
    /// The newest that is read.
    pub const NEWEST: FormatVersion = FormatVersion::V3;
    /// That of the manifest of a store which was opened for writing without encryption.
    pub const WRITTEN: FormatVersion = FormatVersion::V2;

    /// The number in files.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// What a number in a file means.
    pub fn named(number: u32) -> Named {
        match number {
            0 => Named::Never,
            1 => Named::Known(FormatVersion::V1),
            2 => Named::Known(FormatVersion::V2),
            3 => Named::Known(FormatVersion::V3),
            newer => Named::Newer(newer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_up_to_the_newest_is_known() {
        let newest = FormatVersion::NEWEST.number();
        for n in 1..=newest {
            let Named::Known(v) = FormatVersion::named(n) else { panic!("{n}") };
            assert_eq!(v.number(), n);
        }
        assert_eq!(FormatVersion::named(newest + 1), Named::Newer(newest + 1));
        assert_eq!(FormatVersion::named(0), Named::Never);
    }
}
