//! Errors of setting a ring up that name the cause and the remedy.

use crate::engine::probe;
use crate::{Error, ErrorKind};

/// An error that names the cause and the remedy.
pub(super) fn explain(op: &'static str, errno: i32, flags: &[String]) -> Error {
    let why = match errno {
        libc::EPERM | libc::EACCES => match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
            Ok(s) if s.trim() == "2" => {
                "kernel.io_uring_disabled is 2; allow it with `sysctl kernel.io_uring_disabled=0`".into()
            }
            Ok(s) if s.trim() == "1" => {
                "kernel.io_uring_disabled is 1 and this process is neither privileged \
                 nor in the group kernel.io_uring_group; `sysctl kernel.io_uring_disabled=0` allows it"
                    .into()
            }
            _ => format!(
                "{}; use a profile that allows io_uring_setup, io_uring_enter and io_uring_register (for \
                 containers: --security-opt seccomp=...), or the engine libaio or posix",
                if probe::seccomp() { "a seccomp filter refuses it" } else { "a security policy refuses it" }
            ),
        },
        libc::ENOSYS => match probe::seccomp() {
            true => {
                "a seccomp filter hides it, or the kernel is older than Linux 5.6 or built without it; use \
                 another profile, or the engine libaio or posix"
                    .to_string()
            }
            false => {
                "the kernel is older than Linux 5.6 or built without CONFIG_IO_URING; use the engine libaio \
                 or posix"
                    .into()
            }
        },
        libc::ENOMEM => "no memory for the ring: it counts against RLIMIT_MEMLOCK; raise it (`ulimit -l`, \
             LimitMEMLOCK= of systemd) or use a smaller depth"
            .into(),
        libc::EBUSY if !flags.is_empty() => format!("the kernel has no room: {}", flags.join(", ")),
        libc::EMFILE | libc::ENFILE => "no file descriptors left; raise RLIMIT_NOFILE (`ulimit -n`)".into(),
        libc::EINVAL if flags.is_empty() => "the kernel refuses rings of this kind".into(),
        libc::EINVAL => format!("the kernel refuses an option: {}", flags.join(", ")),
        _ => "the ring does not work".into(),
    };
    Error::from_errno(op, errno).with_kind(ErrorKind::Unsupported).detail(why)
}
