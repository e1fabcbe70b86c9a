//! [`Disk`]: the handle on a simulated disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::crash::{CrashOutcome, Decider, Losses};
use super::names::Names;
use super::node::Node;
use super::plan::{Action, Call, Plan};
use super::world::{Point, State, World};
use crate::os::{FileKey, Sys};
use crate::random::Random;
use crate::uri::SimConfig;
use crate::{Error, ErrorKind, Result};

/// A simulated disk; see the [module](super). Clones are handles on the same disk.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
}

struct Shared {
    config: SimConfig,
    world: Mutex<World>,
}

impl Disk {
    /// An empty disk, with the default settings and this seed.
    pub fn new(seed: u64) -> Disk {
        Disk::empty(&SimConfig { seed, ..SimConfig::default() })
    }

    /// An empty disk with these settings. Fails if the plan cannot be read.
    pub fn from_config(config: &SimConfig) -> Result<Disk> {
        let plan = config.read_plan()?;
        let disk = Disk::empty(config);
        disk.set_plan(plan);
        Ok(disk)
    }

    fn empty(config: &SimConfig) -> Disk {
        Disk::of(config, State { files: BTreeMap::new(), names: Names::new(), at: 0 })
    }

    fn of(config: &SimConfig, state: State) -> Disk {
        let mut world = World::new(state, config.seed);
        (world.capacity, world.cow) = (config.capacity, config.cow);
        world.delay = u64::from(config.delay_us) * 1000;
        world.paths = world.state.names.files().into_iter().map(|(p, n)| (n, p)).collect();
        Disk { shared: Arc::new(Shared { config: config.clone(), world: Mutex::new(world) }) }
    }

    /// Its settings.
    pub fn config(&self) -> &SimConfig {
        &self.shared.config
    }

    /// Which file this is among those of all disks, for those who map it and those who cut it.
    pub(crate) fn key(&self, node: u64) -> FileKey {
        FileKey::Other(Arc::as_ptr(&self.shared) as usize, node)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        // A panic while it is held is a bug in here that has been printed.
        self.shared.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over this plan, with its counts at the beginning.
    pub fn set_plan(&self, plan: Plan) {
        self.lock().plan = plan;
    }

    /// How many operations have begun so far: every call on files, names and queues, and every time that bytes stored
    /// to mapped memory are found. Their numbers count from 0.
    pub fn operations(&self) -> u64 {
        let mut w = self.lock();
        w.pull_all();
        w.operations
    }

    /// A number of all operations so far, with their files, places and bytes written: equal if two runs were the same.
    pub fn fingerprint(&self) -> u64 {
        let mut w = self.lock();
        w.pull_all();
        w.print
    }

    /// Cuts the power during operation number `n` (from 0): it fails with EIO and so does everything after it. Files
    /// stay open and useless. [`Disk::crash`] shows what is left.
    pub fn cut_at(&self, n: u64) {
        self.lock().cut_at = Some(n);
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        let mut w = self.lock();
        w.pull_all();
        w.dead = true;
    }

    /// Whether the power has been cut.
    pub fn is_cut(&self) -> bool {
        self.lock().dead
    }

    /// The store to mapped memory, if there was one, for which the disk had no space: on a machine it is a SIGBUS that
    /// ends the process, and here every later call fails with EIO.
    pub fn bus_error(&self) -> Option<String> {
        let mut w = self.lock();
        w.pull_all();
        w.bus_error.clone()
    }

    /// What is left when the power has been cut, or would be if it were cut now, as a disk of its own with no plan.
    /// This one is left as it is. The same outcome of the same disk is always the same.
    pub fn crash(&self, outcome: impl Into<CrashOutcome>) -> Disk {
        self.crash_with_losses(outcome).0
    }

    /// The same, and what became of the changes that were not durable.
    pub fn crash_with_losses(&self, outcome: impl Into<CrashOutcome>) -> (Disk, Losses) {
        let mut w = self.lock();
        w.pull_all();
        let state = w.state.clone();
        drop(w);
        self.after_cut(&state, outcome.into())
    }

    fn after_cut(&self, state: &State, outcome: CrashOutcome) -> (Disk, Losses) {
        let seed = if let CrashOutcome::Random(seed) = outcome { seed } else { 0 };
        let mut random = Random::of(seed, 2);
        let mut losses = Losses::default();
        let decider = Decider::new(outcome, state.at + 1, &mut random);
        let how = decider.names(&mut random);
        let names = state.names.after(how, &mut random, &mut losses);
        let mut files = BTreeMap::new();
        for (_, node) in names.files() {
            if let Some(file) = state.files.get(&node)
                && !files.contains_key(&node)
            {
                let content = file.after(decider.file(&mut random), &mut random, &mut losses);
                files.insert(node, Arc::new(Node::holding(content)));
            }
        }
        (Disk::of(&self.shared.config, State { files, names, at: 0 }), losses)
    }

    /// A disk of its own that holds the same, durable or not, with no plan and the power on, while this one goes on.
    /// It costs a pointer for each file: what they hold is shared until it is changed.
    pub fn clone_now(&self) -> Disk {
        let mut w = self.lock();
        w.pull_all();
        let state = w.state.clone();
        drop(w);
        Disk::of(&self.shared.config, state)
    }

    /// Makes this disk hold what `from` (a clone of it) holds, and switches the power on. Files that are open in both
    /// see what they had; calls on others fail with ESTALE.
    pub fn restore(&self, from: &Disk) {
        let state = from.clone_now().lock().state.clone();
        let mut w = self.lock();
        w.state = state;
        (w.dead, w.cut_at, w.bus_error) = (false, None, None);
        w.paths = w.state.names.files().into_iter().map(|(p, n)| (n, p)).collect();
        w.mapped.clear();
    }

    /// Keeps from now on what the disk holds in the middle of every operation that changes something, to crash there
    /// later without running again; `false` ends it and forgets them.
    pub fn record(&self, on: bool) {
        self.lock().points = on.then(Vec::new);
    }

    /// How many such moments are kept.
    pub fn points(&self) -> usize {
        self.lock().points.as_ref().map_or(0, Vec::len)
    }

    /// One of them.
    pub fn point(&self, i: usize) -> Option<Point> {
        self.lock().points.as_ref()?.get(i).cloned()
    }

    /// What would be left had the power been cut at that moment.
    pub fn crash_at(&self, point: &Point, outcome: impl Into<CrashOutcome>) -> (Disk, Losses) {
        self.after_cut(&point.state, outcome.into())
    }

    /// How many changes of files and of names would not be certain to survive a power cut now.
    pub fn uncertain(&self) -> (usize, usize) {
        let mut w = self.lock();
        w.pull_all();
        (w.state.files.values().map(|f| f.uncertain()).sum(), w.state.names.uncertain())
    }

    /// How often each kind of fault has happened: `"fsync EIO"`, `"write short"`, `"read flip"`, ...
    pub fn faults_hit(&self) -> BTreeMap<String, u64> {
        self.lock().hits.clone()
    }

    /// The disk's own time: what its operations have taken.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.lock().clock)
    }

    /// What a file holds, without an operation.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let mut w = self.lock();
        w.pull_all();
        let e = w.state.names.find(path).ok().flatten().filter(|e| !e.is_dir)?;
        Some(w.file(e.node).ok()?.now.to_vec())
    }

    /// The paths of all files, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        self.lock().state.names.files().into_iter().map(|(p, _)| p).collect()
    }

    /// Changes `bits` bits of what is stored of a file, wherever `seed` says; false if there is no such file or
    /// nothing in it.
    pub fn rot(&self, path: &Path, bits: u64, seed: u64) -> bool {
        let mut w = self.lock();
        w.pull_all();
        let Ok(Some(e)) = w.state.names.find(path) else { return false };
        let Ok(file) = w.file_mut(e.node) else { return false };
        let some = file.now.len() > 0;
        file.rot(bits, &mut Random::of(seed, 3));
        w.refresh_mapping(e.node);
        some
    }

    /// Writes all directories and files below `to`, a directory of the machine that is made if missing: to look at
    /// them with other tools.
    pub fn dump(&self, to: &Path) -> Result<()> {
        let failed = |path: &Path, e: std::io::Error| Error::from_std("dump", &e).at(path);
        std::fs::create_dir_all(to).map_err(|e| failed(to, e))?;
        let mut w = self.lock();
        w.pull_all();
        for (path, entry) in w.state.names.walk() {
            let host = to.join(path.strip_prefix("/").unwrap_or(&path));
            let done = match entry.is_dir {
                true => std::fs::create_dir_all(&host),
                false => match w.file(entry.node) {
                    Ok(file) => std::fs::write(&host, file.now.to_vec()),
                    Err(_) => Ok(()),
                },
            };
            done.map_err(|e| failed(&host, e))?;
        }
        Ok(())
    }

    /// Takes over the directories and files below `from`, a directory of the machine, as if they had always been at
    /// `at`: they are durable.
    pub fn load(&self, from: &Path, at: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::from_std("load", &e).at(from);
        let wrong = |path: &Path, e: i32| Error::from_errno("load", e).at(path);
        let mut todo = vec![(from.to_path_buf(), at.to_path_buf())];
        let mut w = self.lock();
        for p in at.ancestors().collect::<Vec<_>>().into_iter().rev() {
            w.settle_dir(p).map_err(|e| wrong(p, e))?;
        }
        while let Some((host, at)) = todo.pop() {
            for entry in std::fs::read_dir(&host).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let path = at.join(entry.file_name());
                if entry.file_type().map_err(failed)?.is_dir() {
                    w.settle_dir(&path).map_err(|e| wrong(&path, e))?;
                    todo.push((entry.path(), path));
                } else {
                    let bytes = std::fs::read(entry.path()).map_err(failed)?;
                    w.settle_file(&path, &bytes).map_err(|e| wrong(&path, e))?;
                }
            }
        }
        Ok(())
    }

    /// A call of a queue itself.
    pub(crate) fn queue_call(&self, call: Call) -> Sys<()> {
        let mut w = self.lock();
        let v = w.begin(call, Path::new(""), None)?;
        if v.fault == Some(Action::Ring) {
            return Err(libc::EIO);
        }
        v.check()?;
        w.harmless(&v)
    }

    /// Real time passes, if that was asked for.
    pub(crate) fn nap(&self, nanos: u64) {
        if self.config().sleep && nanos > 0 {
            std::thread::sleep(Duration::from_nanos(nanos));
        }
    }
}

impl World {
    fn settle_dir(&mut self, path: &Path) -> Sys<()> {
        match self.state.names.find(path)? {
            Some(e) if e.is_dir => return Ok(()),
            Some(_) => return Err(libc::ENOTDIR),
            None => {}
        }
        let (node, at) = (self.state.names.new_id(), self.next_change());
        self.state.names.link(at, path, node, true)?;
        let (parent, _) = self.state.names.parent(path)?;
        self.state.names.sync(parent);
        Ok(())
    }

    fn settle_file(&mut self, path: &Path, bytes: &[u8]) -> Sys<()> {
        let mut content = super::content::Content::default();
        content.write(0, bytes);
        let (node, at) = (self.state.names.new_id(), self.next_change());
        self.state.names.link(at, path, node, false)?;
        let (parent, _) = self.state.names.parent(path)?;
        self.state.names.sync(parent);
        self.state.files.insert(node, Arc::new(Node::holding(content)));
        self.paths.insert(node, path.to_path_buf());
        Ok(())
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Disk({})", self.config())
    }
}

impl SimConfig {
    fn read_plan(&self) -> Result<Plan> {
        let Some(plan) = &self.plan else { return Ok(Plan::none()) };
        if plan.trim_start().starts_with("on ") {
            return Plan::parse(plan);
        }
        let path = Path::new(plan);
        let text = std::fs::read_to_string(path).map_err(|e| {
            let e = Error::from_std("fault plan", &e).at(path).with_kind(ErrorKind::InvalidInput);
            e.more("a plan is a file, or rules that begin with 'on '")
        })?;
        Plan::parse(&text)
    }
}
