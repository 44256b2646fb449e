use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::{WAIT_TIMEOUT, wait_for_exit};

/// A program on a pseudoterminal, whose output is interpreted as a terminal does.
pub struct OnTerminal {
    child: Child,
    keys: File,
    /// The program's side, held open so that its settings can be read after the program exited.
    device: OwnedFd,
    drawn: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl OnTerminal {
    /// Runs `command` as the foreground of a new session on a new terminal.
    pub fn run(command: &Command, width: u16, height: u16) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let open = || {
            let device = File::options()
                .read(true)
                .write(true)
                .open(Path::new(&name));
            OwnedFd::from(device.unwrap())
        };
        let device = open();
        tcsetwinsize(&device, winsize(width, height)).unwrap();
        // Makes it the controlling terminal and becomes the program itself.
        let mut session = Command::new("setsid");
        session
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(command.get_current_dir().unwrap())
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()));
        let child = session.spawn().unwrap();
        let keys = File::from(keys);
        let mut output = keys.try_clone().unwrap();
        let (send, drawn) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (columns, rows) = size(width, height);
        Self {
            child,
            keys,
            device,
            drawn,
            screen: vt100::Parser::new(rows, columns, 0),
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        let (columns, rows) = size(width, height);
        self.screen.set_size(rows, columns);
        tcsetwinsize(&self.device, winsize(width, height)).unwrap();
    }

    pub fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen is as `looks` demands.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, looks: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !looks(self.screen.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.drawn.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(error) => panic!("{what}: {error}; the terminal shows\n{}", self.text()),
            }
        }
    }

    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contents().contains(text));
    }

    #[track_caller]
    pub fn wait_without(&mut self, text: &str) {
        self.wait_until(&format!("no {text}"), |screen| {
            !screen.contents().contains(text)
        });
    }

    pub fn has_colours(&self) -> bool {
        let screen = self.screen.screen();
        let (rows, columns) = screen.size();
        let mut cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |c| (row, c)));
        cells.any(|(row, column)| {
            let cell = screen.cell(row, column);
            cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program to exit, and asserts that it restored the terminal.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let status = wait_for_exit(&mut self.child);
        self.wait_until("the ordinary screen with a cursor", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        let settings = tcgetattr(&self.device).unwrap().local_modes;
        assert!(
            settings.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG),
            "the terminal is left raw: {settings:?}"
        );
        status
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize(width: u16, height: u16) -> Winsize {
    Winsize {
        ws_row: height,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn size(width: u16, height: u16) -> (NonZeroU16, NonZeroU16) {
    let nonzero = |number| NonZeroU16::new(number).unwrap();
    (nonzero(width), nonzero(height))
}
