//! A tracing instance: its events, its buffers, and its removal.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use tracing::warn;

use crate::SignalsError;
use crate::format::{EventFormat, PageFormat};
use crate::tracefs::{TraceFs, read, write};

/// The buffers of all CPUs together, in KiB.
const BUFFERS_KIB: usize = 4096;
/// The bounds of the buffer of one CPU, in KiB.
const MIN_BUFFER_KIB: usize = 32;
const MAX_BUFFER_KIB: usize = 1024;

/// An event that was traced, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traced {
    Signal { number: i32, pid: i32 },
    Forked { parent: i32, child: i32 },
    Exited { pid: i32 },
}

/// A tracing instance; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Instance {
    tracefs: Arc<TraceFs>,
    name: String,
    /// The raw buffer of each CPU.
    buffers: Vec<OwnedFd>,
    page: PageFormat,
    signal: EventFormat,
    /// Forks and exits, if they are traced.
    lives: Option<(EventFormat, EventFormat)>,
}

impl Instance {
    /// Creates an instance that traces from now on.
    pub(crate) fn create(
        tracefs: Arc<TraceFs>,
        name: &str,
        with_lives: bool,
    ) -> Result<Self, SignalsError> {
        let format = |event: &'static str, first: &str, second: &str| {
            let text = read(tracefs.root(), format!("events/{event}/format"));
            let text = text.map_err(|source| SignalsError::Unsupported {
                why: "this kernel does not trace signals",
                source: Some(source),
            })?;
            EventFormat::parse(&text, first, second).ok_or(SignalsError::Format(event))
        };
        let signal = format("signal/signal_generate", "sig", "pid")?;
        let lives = if with_lives {
            Some((
                format("sched/sched_process_fork", "parent_pid", "child_pid")?,
                format("sched/sched_process_exit", "pid", "pid")?,
            ))
        } else {
            None
        };
        let page = read(tracefs.root(), "events/header_page").ok();
        let page = page.and_then(|text| PageFormat::parse(&text));
        let page = page.ok_or(SignalsError::Format("the pages of its buffers"))?;
        let directory = tracefs.create_instance(name)?;
        let mut instance = Self {
            tracefs,
            name: name.to_owned(),
            buffers: Vec::new(),
            page,
            signal,
            lives,
        };
        instance.configure(&directory, with_lives)?;
        Ok(instance)
    }

    fn configure(&mut self, directory: &OwnedFd, with_lives: bool) -> Result<(), SignalsError> {
        let set = |file: &str, text: &str| {
            write(directory, file, text).map_err(|source| SignalsError::Instance {
                action: format!("write {file}"),
                source,
            })
        };
        // The clock that a reader can compare with.
        set("trace_clock", "mono")?;
        // Readers wake at the first event.
        set("buffer_percent", "0")?;
        let buffers = buffers(directory).map_err(|source| SignalsError::Instance {
            action: "open the buffers".to_owned(),
            source,
        })?;
        let each = (BUFFERS_KIB / buffers.len().max(1)).clamp(MIN_BUFFER_KIB, MAX_BUFFER_KIB);
        self.buffers = buffers;
        set("buffer_size_kb", &each.to_string())?;
        if with_lives {
            set("events/sched/sched_process_fork/enable", "1")?;
            set("events/sched/sched_process_exit/enable", "1")?;
        }
        set("events/signal/signal_generate/enable", "1")
    }

    /// Waits until there are events, or until `end` is readable.
    pub(crate) fn wait(&self, end: &OwnedFd) -> io::Result<()> {
        let mut fds: Vec<_> = self
            .buffers
            .iter()
            .chain([end])
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the events that are there, with their times. Returns whether some were lost.
    pub(crate) fn drain(&self, into: &mut Vec<(u64, Traced)>) -> io::Result<bool> {
        let mut bytes = vec![0; self.page.size];
        let mut lost = false;
        for buffer in &self.buffers {
            loop {
                let length = match rustix::io::read(buffer, &mut bytes) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(length) => length,
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                };
                let page = bytes.get(..length).unwrap_or_default();
                let Some(page) = crate::page::Page::parse(page, self.page) else {
                    break;
                };
                lost |= page.missed;
                into.extend(page.filter_map(|event| Some((event.time, self.traced(event.data)?))));
            }
        }
        Ok(lost)
    }

    fn traced(&self, data: &[u8]) -> Option<Traced> {
        if let Some((number, pid)) = self.signal.read(data) {
            return Some(Traced::Signal { number, pid });
        }
        let (fork, exit) = self.lives.as_ref()?;
        if let Some((parent, child)) = fork.read(data) {
            return Some(Traced::Forked { parent, child });
        }
        exit.read(data).map(|(pid, _)| Traced::Exited { pid })
    }
}

fn buffers(directory: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cpus = openat(directory, "per_cpu", flags, Mode::empty())?;
    let mut buffers = Vec::new();
    for entry in Dir::read_from(&cpus)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("cpu") {
            let path = format!("{name}/trace_pipe_raw");
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            buffers.push(openat(&cpus, path, flags, Mode::empty())?);
        }
    }
    Ok(buffers)
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An instance with open files cannot be removed.
        self.buffers.clear();
        if let Err(error) = self.tracefs.remove_instance(&self.name) {
            warn!(instance = self.name, %error, "cannot remove tracing instance");
        }
    }
}
