//! Measured values by series and time: the newest, means by the hour. Values go by themselves when their time to
//! live is over, or by one write; the means of hours stay.
//!
//! `cargo run -p ringdb --example time_series -- DIRECTORY`

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use ringdb::{Db, Keyspace, KeyspaceOptions, Options, WriteBatch};

/// How long points are kept.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Seconds since some beginning.
pub(crate) type Time = u64;

/// A measured value and its time.
pub(crate) type Point = (Time, f64);

struct TimeSeries {
    db: Db,
    /// Values, which have a time to live.
    points: Keyspace,
    /// Means by the hour, for ever.
    means: Keyspace,
}

/// What the points of an hour have to say.
#[derive(Debug, PartialEq)]
pub(crate) struct Hour {
    pub(crate) start: Time,
    pub(crate) points: usize,
    pub(crate) mean: f64,
}

impl TimeSeries {
    /// Points go when they are `keep` old, by the clock of the machine. The store remembers it; another one holds for
    /// points that come from then on.
    fn open(dir: &Path, keep: Duration) -> ringdb::Result<TimeSeries> {
        let db = Db::open(dir, Options::default())?;
        let points = db.keyspace_with("points", &KeyspaceOptions::default().with_time_to_live(keep))?;
        let means = db.keyspace("means")?;
        Ok(TimeSeries { db, points, means })
    }

    /// Adds the points that a sensor has sent, all or none.
    fn add(&self, series: &str, points: &[Point]) -> ringdb::Result<()> {
        let mut batch = WriteBatch::new();
        for (time, value) in points {
            batch.put_in(&self.points, key(series, *time), value.to_le_bytes());
        }
        self.db.write(batch, &Default::default())
    }

    /// The newest point: the last key of the series, found without reading the others.
    fn newest(&self, series: &str) -> ringdb::Result<Option<Point>> {
        self.points.prefix(format!("{series}\0")).next_back().map(|pair| Ok(point(&pair?))).transpose()
    }

    /// Mean values by the hour. Points come in the order of time, so an hour is finished when the next begins.
    fn hours(&self, series: &str, times: Range<Time>) -> ringdb::Result<Vec<Hour>> {
        let mut hours: Vec<Hour> = vec![];
        for pair in self.points.range(key(series, times.start)..key(series, times.end)) {
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
        self.points.delete_range(key(series, 0)..key(series, time))
    }

    /// Writes down the means of hours, which outlive the points that they are made of.
    fn settle(&self, series: &str, times: Range<Time>) -> ringdb::Result<()> {
        let mut batch = WriteBatch::new();
        for hour in self.hours(series, times)? {
            let value = [(hour.points as u64).to_le_bytes(), hour.mean.to_le_bytes()].concat();
            batch.put_in(&self.means, key(series, hour.start), value);
        }
        self.db.write(batch, &Default::default())
    }

    /// The means that were written down.
    fn settled(&self, series: &str) -> ringdb::Result<Vec<Hour>> {
        let hour = |pair: ringdb::Result<(ringdb::Value, ringdb::Value)>| {
            let (key, value) = pair?;
            let (points, mean) = value.split_at(8);
            let start = key.last_chunk().map_or(0, |t| u64::from_be_bytes(*t));
            let points = points.first_chunk().map_or(0, |n| u64::from_le_bytes(*n)) as usize;
            Ok(Hour { start, points, mean: mean.first_chunk().map_or(f64::NAN, |v| f64::from_le_bytes(*v)) })
        };
        self.means.prefix(format!("{series}\0")).map(hour).collect()
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
    let series = TimeSeries::open(dir, WEEK)?;
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

/// Two hours of a sensor whose points live for `keep` only: the points that are left when that is over, and the means.
pub(crate) fn outlived(dir: &Path, keep: Duration) -> ringdb::Result<(usize, Vec<Hour>)> {
    let series = TimeSeries::open(dir, keep)?;
    let points: Vec<Point> = (0..120).map(|minute| (minute * 60, minute as f64)).collect();
    series.add("attic", &points)?;
    series.settle("attic", 0..u64::MAX)?;
    std::thread::sleep(keep + Duration::from_millis(10));
    let left = series.points.prefix("attic\0").count();
    let found = (left, series.settled("attic")?);
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
    let (left, means) = outlived(&Path::new(&dir).join("short"), Duration::from_millis(500))?;
    println!("attic: {left} points are left, and {} means", means.len());
    Ok(())
}
