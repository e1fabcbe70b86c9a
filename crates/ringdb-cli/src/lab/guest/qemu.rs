//! A machine in QEMU's software emulation, from its start to its end.
//!
//! It ends always: when the guest switches itself off, when its time is over, and when this process ends, however that
//! happens (the kernel kills it then, which `setpriv` asks for).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::images::Images;
use super::job::{Bus, Machine, Results};
use super::parcel::{self, Content, RESULTS_BYTES};
use crate::error::{Failure, Result, at, failed};

const KEPT_LINES: usize = 20;
const LINE_BYTES: usize = 4096;

/// The programs that a machine needs.
pub struct Qemu {
    qemu: PathBuf,
    setpriv: PathBuf,
}

/// Its child, which does not outlive its owner.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&dirs).map(|d| d.join(name)).find(|p| p.is_file());
    found.ok_or_else(|| Failure::Failed(format!("{name} is not installed (Debian package: {package})")))
}

impl Qemu {
    pub fn find() -> Result<Qemu> {
        let qemu = program("qemu-system-x86_64", "qemu-system-x86")?;
        Ok(Qemu { qemu, setpriv: program("setpriv", "util-linux")? })
    }

    /// Boots the machine with these files in it, and gives what it left; `dir` is for its disks, and `hear` gets what
    /// its console says.
    pub fn run(
        &self,
        images: &Images,
        machine: &Machine,
        files: &[(&str, Content)],
        dir: &Path,
        hear: &mut dyn FnMut(&str),
    ) -> Result<Results> {
        parcel::pack(&dir.join("job"), files)?;
        empty(&dir.join("results"), RESULTS_BYTES)?;
        for disk in &machine.disks {
            empty(&dir.join(disk.serial), disk.mib << 20)?;
            if matches!(disk.bus, Bus::Logged) {
                empty(&dir.join(disk.log()), 0)?;
            }
        }
        let mut command = Command::new(&self.qemu);
        command.args(line(images, machine, dir)?);
        let said = self.bounded(["the guest", "QEMU"], &command, machine.seconds, hear)?;
        match parcel::unpack(&dir.join("results"))? {
            Some(files) => Ok(Results { files }),
            None => failed(format!(
                "the guest ended without results; the last that it said:\n{}",
                said.join("\n")
            )),
        }
    }

    /// Runs a command until it ends, so many seconds at most and never longer than this process; what it said last.
    /// `names` says what it is, and which program.
    pub fn bounded(
        &self,
        names: [&str; 2],
        command: &Command,
        seconds: u64,
        hear: &mut dyn FnMut(&str),
    ) -> Result<Vec<String>> {
        let mut run = Command::new(&self.setpriv);
        run.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = run.spawn().map_err(|e| Failure::Failed(format!("{}: {e}", self.setpriv.display())))?;
        let mut guest = Guest(child);
        let (sender, lines) = channel();
        if let (Some(out), Some(err)) = (guest.0.stdout.take(), guest.0.stderr.take()) {
            listen(out, sender.clone());
            listen(err, sender);
        }
        follow(names, &mut guest, &lines, seconds, hear)
    }
}

fn empty(path: &Path, bytes: u64) -> Result<()> {
    at(path, File::create(path).and_then(|f| f.set_len(bytes)))
}

/// QEMU's arguments.
fn line(images: &Images, machine: &Machine, dir: &Path) -> Result<Vec<OsString>> {
    let mut line: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: OsString| line.extend([option.into(), value]);
    let Machine { cpus, memory_mib, poll_queues, .. } = machine;
    // Never /dev/kvm: what runs the tests need not have it, and with it counts would differ from machine to machine.
    for (option, value) in [
        ("-accel", "tcg,thread=multi".to_string()),
        ("-cpu", "max".into()),
        ("-M", "q35".into()),
        ("-smp", format!("{cpus},sockets=1,cores={cpus}")),
        ("-m", memory_mib.to_string()),
        ("-display", "none".into()),
        ("-nic", "none".into()),
        ("-serial", "stdio".into()),
        ("-append", format!("console=ttyS0 quiet panic=-1 mitigations=off nvme.poll_queues={poll_queues}")),
    ] {
        add(option, value.into());
    }
    add("-kernel", images.kernel(machine.kernel).into());
    add("-initrd", images.initrd(machine.kernel).into());
    let root = images.root();
    let jobs = [
        ("root", root.as_path(), "snapshot=on,cache=unsafe"),
        ("job", &dir.join("job"), "readonly=on"),
        ("results", &dir.join("results"), "cache=unsafe"),
    ];
    for (serial, file, how) in jobs {
        add("-drive", drive(serial, file, how)?);
        add("-device", format!("virtio-blk-pci,drive={serial},serial={serial}").into());
    }
    for disk in &machine.disks {
        let serial = disk.serial;
        match disk.bus {
            Bus::Logged => add("-blockdev", logged(serial, &dir.join(serial), &dir.join(disk.log()))?),
            _ => add("-drive", drive(serial, &dir.join(serial), "cache=unsafe")?),
        }
        let device = match disk.bus {
            Bus::Nvme(queues) => format!("nvme,drive={serial},serial={serial},max_ioqpairs={queues}"),
            Bus::Virtio => format!("virtio-blk-pci,drive={serial},serial={serial}"),
            // The log has no contents for what is discarded or zeroed by a command. And merged requests may have as
            // many pieces as one call takes, to which the log adds two: QEMU 7.2 then fails the write.
            Bus::Logged => format!(
                "virtio-blk-pci,drive={serial},serial={serial},discard=off,write-zeroes=off,request-merging=off"
            ),
        };
        add("-device", device.into());
    }
    line.extend(["-nodefaults".into(), "-no-reboot".into()]);
    Ok(line)
}

fn drive(id: &str, file: &Path, how: &str) -> Result<OsString> {
    Ok(format!("if=none,id={id},format=raw,{how},file={}", quoted(file)?).into())
}

/// A disk whose writes and flushes are logged. Nothing need reach this machine's own disk: what a power cut leaves is
/// made of the log.
fn logged(id: &str, file: &Path, log: &Path) -> Result<OsString> {
    let (file, log) = (quoted(file)?, quoted(log)?);
    let raw = |name: &str, file: &str| {
        format!(
            "{name}.driver=raw,{name}.file.driver=file,{name}.cache.no-flush=on,{name}.file.filename={file}"
        )
    };
    let (file, log) = (raw("file", &file), raw("log", &log));
    Ok(format!("driver=blklogwrites,node-name={id},{file},{log}").into())
}

fn quoted(file: &Path) -> Result<String> {
    match file.to_str() {
        // A comma ends an option of QEMU's, two are one.
        Some(file) => Ok(file.replace(',', ",,")),
        None => failed(format!("{}: QEMU needs a path in UTF-8", file.display())),
    }
}

/// Sends the lines of a stream, each cut at [`LINE_BYTES`], until it ends.
fn listen(mut from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        let (mut line, mut bytes) = (Vec::new(), [0; 1024]);
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            for b in &bytes[..n] {
                match b {
                    b'\n' => {
                        let said = String::from_utf8_lossy(&line).trim_end().to_string();
                        line.clear();
                        if to.send(said).is_err() {
                            return;
                        }
                    }
                    b => {
                        if line.len() < LINE_BYTES {
                            line.push(*b);
                        }
                    }
                }
            }
        }
    });
}

/// Waits until a program has ended, `seconds` at most; its last lines.
fn follow(
    names: [&str; 2],
    guest: &mut Guest,
    lines: &Receiver<String>,
    seconds: u64,
    hear: &mut dyn FnMut(&str),
) -> Result<Vec<String>> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut last: VecDeque<String> = VecDeque::new();
    loop {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(said) => {
                hear(&said);
                last.push_back(said);
                if last.len() > KEPT_LINES {
                    last.pop_front();
                }
            }
            // A child that has closed its streams may still run.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(50)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let tail = || last.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        if let Some(status) = guest.0.try_wait()? {
            last.extend(lines.try_iter());
            return match status.success() {
                true => Ok(last.into()),
                false => failed(format!(
                    "{} ended with {status}:\n{}",
                    names[1],
                    last.make_contiguous().join("\n")
                )),
            };
        }
        if Instant::now() > end {
            return failed(format!(
                "{} has not ended within {seconds} seconds and was stopped; the last that it said:\n{}",
                names[0],
                tail()
            ));
        }
    }
}
