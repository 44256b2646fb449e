use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::wait::pid_of;
use crate::{WAIT_TIMEOUT, wait_for_exit};

/// A server that announces on its standard output that it is ready. Killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    spawned: Instant,
    ready_after: Duration,
    stderr: PathBuf,
}

impl ServerProcess {
    /// Spawns `command`, with its standard error in the file `stderr`, and hands each line that it
    /// prints to `is_ready` until that returns true.
    pub fn start(
        mut command: Command,
        stderr: &Path,
        mut is_ready: impl FnMut(&str) -> bool,
    ) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(stderr).unwrap());
        let spawned = Instant::now();
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {:?}: {error}", command.get_program()));
        let stdout = child.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        // Reads to EOF, so that the server never writes into a full or closed pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let mut server = Self {
            child,
            spawned,
            ready_after: Duration::ZERO,
            stderr: stderr.to_owned(),
        };
        let mut printed = String::new();
        loop {
            let Ok(line) = lines.recv_timeout(WAIT_TIMEOUT) else {
                let status = server.child.try_wait();
                panic!(
                    "{:?} is not ready ({status:?})\n{printed}{}",
                    command.get_program(),
                    server.stderr()
                );
            };
            if is_ready(&line) {
                server.ready_after = spawned.elapsed();
                return server;
            }
            printed.push_str(&line);
            printed.push('\n');
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Time since just before the process was spawned.
    pub fn age(&self) -> Duration {
        self.spawned.elapsed()
    }

    /// Time from the spawn to the announcement.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Everything written to standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(pid_of(&self.child), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_for_exit(&mut self.child)
    }

    /// Sends SIGTERM and waits.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends SIGKILL and waits.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
