//! Measured values by series and time: the newest, means by the hour, and what is too old goes by one write.
//!
//! `cargo run -p ringdb --example time_series -- DIRECTORY`

use std::ops::Range;
use std::path::Path;

use ringdb::{Db, Options, WriteBatch};

/// Seconds since some beginning.
pub(crate) type Time = u64;

/// A measured value and its time.
pub(crate) type Point = (Time, f64);

struct TimeSeries {
    db: Db,
}

/// What the points of an hour have to say.
#[derive(Debug, PartialEq)]
pub(crate) struct Hour {
    pub(crate) start: Time,
    pub(crate) points: usize,
    pub(crate) mean: f64,
}

impl TimeSeries {
    fn open(dir: &Path) -> ringdb::Result<TimeSeries> {
        Ok(TimeSeries { db: Db::open(dir, Options::default())? })
    }

    /// Adds the points that a sensor has sent, all or none.
    fn add(&self, series: &str, points: &[Point]) -> ringdb::Result<()> {
        let mut batch = WriteBatch::new();
        for (time, value) in points {
            batch.put(key(series, *time), value.to_le_bytes());
        }
        self.db.write(batch, &Default::default())
    }

    /// The newest point: the last key of the series, found without reading the others.
    fn newest(&self, series: &str) -> ringdb::Result<Option<Point>> {
        self.db.prefix(format!("{series}\0")).next_back().map(|pair| Ok(point(&pair?))).transpose()
    }

    /// Mean values by the hour. Points come in the order of time, so an hour is finished when the next begins.
    fn hours(&self, series: &str, times: Range<Time>) -> ringdb::Result<Vec<Hour>> {
        let mut hours: Vec<Hour> = vec![];
        for pair in self.db.range(key(series, times.start)..key(series, times.end)) {
            let (time, value) = point(&pair?);
            let start = time - time % 3600;
            match hours.last_mut().filter(|h| h.start == start) {
                Some(hour) => {
                    hour.points += 1;
                    hour.mean += (value - hour.mean) / hour.points as f64;
                }
                None => hours.push(Hour { start, points: 1, mean: value }),
            }
        }
        Ok(hours)
    }

    /// Forgets all points of a series before `time`: one write, however many there are.
    fn forget(&self, series: &str, time: Time) -> ringdb::Result<()> {
        self.db.delete_range(key(series, 0)..key(series, time))
    }
}

/// Big endian: the order of the bytes is that of the times.
fn key(series: &str, time: Time) -> Vec<u8> {
    [series.as_bytes(), b"\0", &time.to_be_bytes()].concat()
}

fn point((key, value): &(ringdb::Value, ringdb::Value)) -> Point {
    let time = key.last_chunk().map_or(0, |t| u64::from_be_bytes(*t));
    (time, value.first_chunk().map_or(f64::NAN, |v| f64::from_le_bytes(*v)))
}

/// Three hours of two sensors, the first hour forgotten again: what is left of one, the newest of the other.
pub(crate) fn run(dir: &Path) -> ringdb::Result<(Vec<Hour>, Option<Point>)> {
    let series = TimeSeries::open(dir)?;
    for minute in 0..180 {
        let (time, hour) = (minute * 60, minute / 60);
        series.add("kitchen", &[(time, 20.0 + hour as f64), (time + 30, 21.0 + hour as f64)])?;
        series.add("cellar", &[(time, 12.0)])?;
    }
    series.forget("kitchen", 3600)?;
    let found = (series.hours("kitchen", 0..u64::MAX)?, series.newest("cellar")?);
    series.db.close()?;
    Ok(found)
}

fn main() -> ringdb::Result<()> {
    let dir = std::env::args().nth(1).expect("a directory for the store");
    let (hours, newest) = run(Path::new(&dir))?;
    for hour in hours {
        println!("kitchen, {} s: {} points, {:.1} degrees", hour.start, hour.points, hour.mean);
    }
    println!("cellar, newest: {newest:?}");
    Ok(())
}
