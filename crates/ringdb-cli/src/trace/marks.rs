//! What bpftrace tells of a request: a line of names, numbers and times.

/// The times of a request in nanoseconds of the machine's clock; 0 where a tracepoint was not passed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    pub engine: String,
    pub op: String,
    /// The thread that submitted it, the one that saw it completed, and the kernel's worker; 0 if none.
    pub from: u32,
    pub to: u32,
    pub by: u32,
    /// Done by plain system calls.
    pub plain: bool,
    pub len: u64,
    /// Bytes, or a negative errno.
    pub result: i64,
    /// The probe before it.
    pub begun: u64,
    /// The system call that gave it to the kernel.
    pub call: u64,
    /// The ring, or libaio's context, has taken it.
    pub taken: u64,
    /// It was handed to the kernel's workers.
    pub punted: u64,
    /// Its worker woke up for it, or had done what it had before.
    pub worker: u64,
    /// The first word of a file system.
    pub fs: u64,
    /// The first request to the device, and the last one's end.
    pub issued: u64,
    pub done: u64,
    /// Its worker has told the submitter.
    pub worked: u64,
    /// Its completion is in the ring.
    pub posted: u64,
    /// The last time that the thread that saw it completed was woken, ran again, and came back from a system call.
    pub waking: u64,
    pub running: u64,
    pub returned: u64,
    /// The probe behind it.
    pub end: u64,
}

/// The request of a line; `None` of other lines, and of those that were cut.
pub fn parse(line: &str) -> Option<Marks> {
    let mut words = line.strip_prefix("r ")?.split(' ');
    let (engine, op) = (words.next()?.to_string(), words.next()?.to_string());
    let (from, to) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let by = words.next()?.parse().ok()?;
    let plain = words.next()? == "1";
    let (len, result) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut times = [0u64; 14];
    for time in &mut times {
        *time = words.next()?.parse().ok()?;
    }
    let [
        begun,
        call,
        taken,
        punted,
        worker,
        fs,
        issued,
        done,
        worked,
        posted,
        waking,
        running,
        returned,
        end,
    ] = times;
    if words.next().is_some() || begun == 0 || end < begun {
        return None;
    }
    Some(Marks {
        engine,
        op,
        from,
        to,
        by,
        plain,
        len,
        result,
        begun,
        call,
        taken,
        punted,
        worker,
        fs,
        issued,
        done,
        worked,
        posted,
        waking,
        running,
        returned,
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_line_is_read() {
        let m = parse(
            "r io_uring write 5201 5201 5202 0 4096 4096 13991858457169 13991858460624 13991858462226 13991858464339 \
             13991858467895 13991858472231 0 0 13991858478921 13991858607472 13991858478460 13991858605379 13991858608994 \
             13991858612179",
        )
        .unwrap();
        assert_eq!(
            (m.engine.as_str(), m.op.as_str(), m.from, m.by, m.plain),
            ("io_uring", "write", 5201, 5202, false)
        );
        assert_eq!((m.begun, m.punted, m.issued, m.end), (13991858457169, 13991858464339, 0, 13991858612179));
        assert_eq!((m.len, m.result), (4096, 4096));
    }

    #[test]
    fn what_is_cut_or_is_no_request_is_none() {
        let line = "r posix read 1 1 0 1 4096 -5 10 11 0 0 0 12 13 14 0 0 15 16 17 20";
        assert_eq!(parse(line).unwrap().result, -5);
        for bad in [
            "begun",
            "@seen[posix]: 12",
            "",
            "r posix",
            &line[..line.len() - 3],
            &format!("{line} 1"),
            "r posix read 1 1 0 1 4096 4096 30 11 0 0 0 12 13 14 0 0 15 16 17 20",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
