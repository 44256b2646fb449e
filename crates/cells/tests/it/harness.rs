//! An engine with its own state directory and cgroup root, both removed after the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_cells::cgroup::{Controller, Layout};
use mainstay_cells::zygote::ZygoteCommand;
use mainstay_cells::{
    CellError, CellEvent, CellEvents, CellName, CellSpec, CellStatus, Cells, ExecutableName,
    ExecutableRecord, ExecutableSpec, ExitStatus, FoundRun, Run, Settings, StopOptions,
};
use mainstay_journal::{LogLimits, LogQuery, LogStream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::Notify;

/// The bound of every wait; reaching it is a failure. Generous, for emulated machines.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct TestCells {
    pub cells: Cells,
    pub events: Events,
    settings: Settings,
    state: tempfile::TempDir,
}

#[derive(Debug, Clone, Default)]
pub struct Events {
    published: Arc<Mutex<Vec<CellEvent>>>,
    more: Arc<Notify>,
}

impl CellEvents for Events {
    fn publish(&self, event: CellEvent) {
        self.published.lock().unwrap().push(event);
        self.more.notify_waiters();
    }
}

impl Events {
    pub fn published(&self) -> Vec<CellEvent> {
        self.published.lock().unwrap().clone()
    }

    /// Waits until a matching event has been published.
    pub async fn until(&self, what: &str, is_it: impl Fn(&CellEvent) -> bool) -> CellEvent {
        soon(what, async {
            loop {
                // Registered before the check, so that no event in between is missed.
                let more = self.more.notified();
                if let Some(event) = self.published().into_iter().find(&is_it) {
                    return event;
                }
                more.await;
            }
        })
        .await
    }

    /// Waits for that many published exits of an executable, and returns all of them.
    pub async fn ends_of(&self, executable: &str, count: usize) -> Vec<ExitStatus> {
        let ends = || -> Vec<ExitStatus> {
            let published = self.published().into_iter();
            published
                .filter_map(|event| match event {
                    CellEvent::Ended {
                        executable: of,
                        status,
                        ..
                    } if of.as_str() == executable => Some(status),
                    _ => None,
                })
                .collect()
        };
        soon("the published exits", async {
            loop {
                // Registered before the check, so that no event in between is missed.
                let more = self.more.notified();
                let ends = ends();
                if ends.len() >= count {
                    return ends;
                }
                more.await;
            }
        })
        .await
    }
}

/// Bounds a wait for something that must happen.
pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(value) => value,
        Err(_) => panic!("timed out after {PATIENCE:?} waiting for {what}"),
    }
}

/// The number itself, or a twentieth of it on an emulated CPU.
pub fn many(number: usize) -> usize {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap();
    if processor.contains("TCG") {
        number.div_ceil(20)
    } else {
        number
    }
}

/// Runs a test with this machine's cgroup layout, and on a hybrid machine also with v1 alone.
pub async fn on_every_kind(name: &str, test: impl AsyncFn(TestCells)) {
    let layout = Layout::detect().unwrap();
    if !layout.v1.is_empty() && layout.unified.is_some() {
        let v1 = Layout {
            unified: None,
            ..layout.clone()
        };
        test(TestCells::with_layout(&format!("{name}-v1"), v1)).await;
    }
    test(TestCells::with_layout(name, layout)).await;
}

impl TestCells {
    pub fn new(name: &str) -> Self {
        Self::with_layout(name, Layout::detect().unwrap())
    }

    pub fn with_layout(name: &str, layout: Layout) -> Self {
        let state = tempfile::Builder::new().prefix("cells-").tempdir().unwrap();
        let zygote = ZygoteCommand {
            program: std::env::current_exe().unwrap(),
            args: [
                "--ignored",
                "--exact",
                "--nocapture",
                "--test-threads=1",
                "zygote::entry",
            ]
            .map(Into::into)
            .to_vec(),
        };
        let settings = Settings {
            state: state.path().to_owned(),
            hidden: Vec::new(),
            cgroup: format!("mainstay-test-{}-{name}", std::process::id()),
            layout: Some(layout),
            zygote,
            logs_keep_free: 0,
            logs: LogLimits {
                file_bytes: 64 << 20,
                total_bytes: 4 << 30,
            },
            grace: Duration::from_secs(10),
            uid_range: (500_000, 65_536),
            user_namespace: false,
            default_pids: Some(4096),
            unconfined: false,
        };
        let events = Events::default();
        let cells = Cells::open(settings.clone(), events.clone()).unwrap();
        Self {
            cells,
            events,
            settings,
            state,
        }
    }

    /// Opens another engine on the same state, as after a restart.
    pub fn again(&mut self) {
        self.cells = Cells::open(self.settings.clone(), self.events.clone()).unwrap();
    }

    /// Opens another engine with other settings on the same state.
    pub fn reopen_with(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.again();
    }

    /// Restarts the engine, and runs `meanwhile` while there is none.
    pub async fn without_engine(&mut self, meanwhile: impl AsyncFnOnce(&Path)) {
        let nothing = tempfile::tempdir().unwrap();
        let settings = Settings {
            state: nothing.path().to_owned(),
            cgroup: format!("{}-nothing", self.settings.cgroup),
            ..self.settings.clone()
        };
        self.cells = Cells::open(settings, Events::default()).unwrap();
        meanwhile(self.state.path()).await;
        self.again();
    }

    pub fn state(&self) -> &Path {
        self.state.path()
    }

    pub async fn allocate(&self, cell: &str) {
        self.allocate_as(cell, CellSpec::default()).await;
    }

    pub async fn allocate_as(&self, cell: &str, spec: CellSpec) {
        self.cells.allocate(name(cell), spec).await.unwrap();
    }

    pub async fn free(&self, cell: &str) {
        soon("the cell to go", self.cells.free(name(cell)))
            .await
            .unwrap();
    }

    /// Frees all cells, and asserts that nothing is left.
    pub async fn free_all(&self) {
        for status in self.cells.list() {
            if status.cell.name.parent().is_none() {
                self.free(status.cell.name.as_str()).await;
            }
        }
        assert_eq!(self.left(), Vec::<PathBuf>::new());
    }

    pub async fn start(
        &self,
        cell: &str,
        executable: &str,
        command: &str,
    ) -> Result<Run, CellError> {
        self.start_as(cell, executable, command, |_| {}).await
    }

    pub async fn start_as(
        &self,
        cell: &str,
        executable: &str,
        command: &str,
        change: impl FnOnce(&mut ExecutableSpec),
    ) -> Result<Run, CellError> {
        let mut spec = ExecutableSpec {
            command: command.to_owned(),
            words: ExecutableSpec::split(command).unwrap(),
            ..ExecutableSpec::default()
        };
        change(&mut spec);
        self.cells
            .start(name(cell), executable.parse().unwrap(), spec)
            .await
    }

    pub async fn stop(&self, cell: &str, executable: &str) -> Result<(), CellError> {
        let executable = (!executable.is_empty()).then(|| executable.parse().unwrap());
        self.cells
            .stop(name(cell), executable, StopOptions::default())
            .await
    }

    /// Starts a shell script verbatim, without a second round of quoting.
    pub async fn start_script(&self, cell: &str, executable: &str, script: &str) -> Run {
        let started = self.start_as(cell, executable, "sh", |spec| {
            spec.words = ["sh", "-c", script].map(str::to_owned).to_vec();
        });
        started.await.unwrap()
    }

    /// Returns the output of a script in a cell; it must exit with 0.
    pub async fn says(&self, cell: &str, script: &str) -> String {
        self.says_as(cell, script, |_| {}).await
    }

    pub async fn says_as(
        &self,
        cell: &str,
        script: &str,
        change: impl FnOnce(&mut ExecutableSpec),
    ) -> String {
        let started = self.start_as(cell, "script", "sh", |spec| {
            spec.words = ["sh", "-c", script].map(str::to_owned).to_vec();
            change(spec);
        });
        started.await.unwrap();
        let (how, text) = self.ended(cell, "script").await;
        assert_eq!(how, ExitStatus::Exited(0), "{script}: {text}");
        text
    }

    /// Runs a command to its exit: its exit status and output.
    pub async fn run(&self, cell: &str, executable: &str, command: &str) -> (ExitStatus, String) {
        self.start(cell, executable, command).await.unwrap();
        self.ended(cell, executable).await
    }

    pub async fn ended(&self, cell: &str, executable: &str) -> (ExitStatus, String) {
        let (run, bytes) = self.output(cell, executable).await;
        let how = run.end.unwrap().status;
        (how, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for the end of the latest run, and returns it with its output.
    pub async fn output(&self, cell: &str, executable: &str) -> (Run, Vec<u8>) {
        let found = self.found(cell, executable);
        let run = soon("its end", self.cells.until_ended(&found)).await;
        let query = LogQuery {
            since: Some(run.started()),
            ..LogQuery::default()
        };
        let mut log = self.log(cell, executable, query).await;
        let mut bytes = Vec::new();
        while let Some(chunk) = log.next().await.unwrap() {
            chunk.append_text(&mut bytes);
        }
        (run, bytes)
    }

    pub fn found(&self, cell: &str, executable: &str) -> FoundRun {
        let pid = self.record(cell, executable).run.pid;
        self.cells.find_run(pid).unwrap()
    }

    pub async fn log(&self, cell: &str, executable: &str, query: LogQuery) -> LogStream {
        let (cell, executable) = (name(cell), executable.parse().unwrap());
        let log = self.cells.read_log(&cell, &executable, query);
        log.await.unwrap()
    }

    /// Waits until an executable has written a text.
    pub async fn until_said(&self, cell: &str, executable: &str, text: &str) {
        let query = LogQuery {
            since: Some(self.found(cell, executable).run.started()),
            follow: true,
            ..LogQuery::default()
        };
        let mut log = self.log(cell, executable, query).await;
        let mut said = Vec::new();
        soon(text, async {
            while !String::from_utf8_lossy(&said).contains(text) {
                let chunk = log.next().await.unwrap().unwrap();
                chunk.append_text(&mut said);
            }
        })
        .await;
    }

    pub fn status(&self, cell: &str) -> CellStatus {
        let mut list = self.cells.list().into_iter();
        list.find(|status| status.cell.name == name(cell)).unwrap()
    }

    pub fn record(&self, cell: &str, executable: &str) -> ExecutableRecord {
        let executable: ExecutableName = executable.parse().unwrap();
        let mut executables = self.status(cell).executables.into_iter();
        executables
            .find(|record| record.name == executable)
            .unwrap()
    }

    /// The path of a cgroup in the membership hierarchy.
    pub fn group(&self, group: &str) -> PathBuf {
        let layout = self.settings.layout.as_ref().unwrap();
        let pids = layout.v1.get(&Controller::Pids);
        let tree = layout.unified.as_ref().or(pids).unwrap();
        tree.join(&self.settings.cgroup).join(group)
    }

    /// The host PIDs in a cell and those nested in it.
    pub fn processes_in(&self, cell: &str) -> Vec<i32> {
        let mut open = vec![self.group(cell)];
        let mut pids = Vec::new();
        while let Some(group) = open.pop() {
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().map(|line| line.parse::<i32>().unwrap()));
            let inside = fs::read_dir(&group).into_iter().flatten().flatten();
            open.extend(
                inside
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir()),
            );
        }
        pids
    }

    pub fn cgroup(&self) -> &str {
        &self.settings.cgroup
    }

    /// The cgroups and files of the engine that are left.
    pub fn left(&self) -> Vec<PathBuf> {
        let layout = self.settings.layout.clone().unwrap();
        let mut left = Vec::new();
        for tree in layout.v1.values().chain(&layout.unified) {
            let root = tree.join(&self.settings.cgroup);
            left.extend(root.exists().then_some(root));
        }
        for directory in ["cells", "executables", "logs"] {
            let entries = fs::read_dir(self.state().join("cells").join(directory)).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
        left
    }
}

impl Drop for TestCells {
    fn drop(&mut self) {
        // Left by a failed test.
        let layout = self.settings.layout.clone().unwrap();
        let groups = mainstay_cells::cgroup::Cgroups::new(layout.clone(), &self.settings.cgroup);
        let _ = groups.unwrap().kill("");
        for tree in layout.v1.values().chain(&layout.unified) {
            remove(&tree.join(&self.settings.cgroup));
        }
    }
}

fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove(&entry.path());
        }
    }
    // EBUSY until the last killed process has left the cgroup. What is left after the bound shows in
    // the machine's cgroups; a drop must neither spin for ever nor panic.
    let deadline = Instant::now() + PATIENCE;
    while fs::remove_dir(path).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
        && Instant::now() < deadline
    {
        std::thread::yield_now();
    }
}

pub fn name(cell: &str) -> CellName {
    cell.parse().unwrap()
}

/// Waits until a process has exited, also one that is not a child.
pub async fn until_gone(pid: i32) {
    let Ok(pidfd) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::NONBLOCK) else {
        return;
    };
    let ended = tokio::task::spawn_blocking(move || {
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
    });
    soon("a process to end", ended).await.unwrap();
}
