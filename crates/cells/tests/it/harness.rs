//! An engine with a state and a control group of its own, of which nothing is left after the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_cells::cgroup::Layout;
use mainstay_cells::zygote::ZygoteCommand;
use mainstay_cells::{
    CellError, CellEvent, CellEvents, CellName, CellSpec, Cells, ExecutableName, ExecutableRecord,
    ExecutableSpec, HowEnded, Run, Settings, StopHow,
};
use mainstay_journal::{LogLimits, LogQuery};

pub struct TestCells {
    pub cells: Cells,
    pub events: Events,
    settings: Settings,
    state: tempfile::TempDir,
}

#[derive(Debug, Clone, Default)]
pub struct Events(pub Arc<Mutex<Vec<CellEvent>>>);

impl CellEvents for Events {
    fn tell(&self, event: CellEvent) {
        self.0.lock().unwrap().push(event);
    }
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
            cgroup: format!("mainstay-test-{}-{name}", std::process::id()),
            layout: Some(layout),
            zygote,
            logs: LogLimits {
                file_bytes: 64 << 20,
                total_bytes: 4 << 30,
            },
            grace: Duration::from_secs(10),
            users: (500_000, 65_536),
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

    /// Another engine on the same state, as after a restart. Where the first one lives on it does
    /// no harm: only what is asked of it acts.
    pub fn again(&mut self) {
        self.cells = Cells::open(self.settings.clone(), self.events.clone()).unwrap();
    }

    pub fn state(&self) -> &Path {
        self.state.path()
    }

    pub async fn allocate(&self, cell: &str) {
        let made = self.cells.allocate(name(cell), CellSpec::default()).await;
        made.unwrap();
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
            .stop(name(cell), executable, StopHow::default())
            .await
    }

    /// Runs to its end, and tells how that was and what it wrote.
    pub async fn run(&self, cell: &str, executable: &str, command: &str) -> (HowEnded, String) {
        self.start(cell, executable, command).await.unwrap();
        self.ended(cell, executable).await
    }

    pub async fn ended(&self, cell: &str, executable: &str) -> (HowEnded, String) {
        let record = self.record(cell, executable);
        let found = self.cells.find_run(record.run.pid).unwrap();
        let run = self.cells.until_ended(&found).await;
        let mut text = Vec::new();
        let query = LogQuery {
            since: Some(run.started()),
            ..LogQuery::default()
        };
        let mut log = self.cells.logs().read(&found.log, query).await.unwrap();
        while let Some(chunk) = log.next().await.unwrap() {
            chunk.append_text(&mut text);
        }
        (
            run.end.unwrap().how,
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    pub fn record(&self, cell: &str, executable: &str) -> ExecutableRecord {
        let executable: ExecutableName = executable.parse().unwrap();
        let list = self.cells.list();
        let cell = list
            .into_iter()
            .find(|status| status.cell.name == name(cell))
            .unwrap();
        let mut executables = cell.executables.into_iter();
        executables
            .find(|record| record.name == executable)
            .unwrap()
    }

    /// Everything of the engine that is left: groups, files, processes in groups.
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
        // What a failed test has left.
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
    // A group whose last process is just ending goes a moment later.
    while fs::remove_dir(path).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {}
}

pub fn name(cell: &str) -> CellName {
    cell.parse().unwrap()
}
