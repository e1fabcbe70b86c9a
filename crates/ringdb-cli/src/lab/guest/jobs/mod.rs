//! The jobs.

mod conformance;
mod coop;
mod doctor;
mod faults;
mod iopoll;
mod powercut;

use super::job::Job;

/// What each script begins with: functions, and a trial of the command.
pub const PRELUDE: &str = include_str!("prelude.sh");

/// The status of a script that cannot run the command.
pub const NOT_HERE: i32 = 99;

pub fn all() -> Vec<Job> {
    vec![
        doctor::JOB,
        conformance::JOB,
        iopoll::JOB,
        coop::JOB,
        faults::JOB,
        powercut::JOB,
        powercut::SMOKE,
        powercut::MISTAKES,
    ]
}
