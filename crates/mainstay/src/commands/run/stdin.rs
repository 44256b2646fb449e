//! Standard input of the command, kept until the node has accepted it.

use std::collections::VecDeque;
use std::io::{self, Read};

use mainstay_api::runtime::AttachData;
use nix::sys::signal::{SigSet, Signal};
use rustix::time::Timespec;
use tokio::sync::mpsc;

use super::terminal;

/// The most bytes of one message.
const MAX_CHUNK_BYTES: usize = 32 * 1024;
/// Bytes that are sent before the node has accepted earlier ones.
const WINDOW_BYTES: usize = 256 * 1024;

/// Time between checks whether the command is in the foreground again, of which nothing notifies.
const BACKGROUND_CHECK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Bytes read from standard input, with their offsets.
pub(super) struct Stdin {
    read: mpsc::Receiver<Vec<u8>>,
    /// Not accepted by the node yet; the first has the offset `accepted`.
    unaccepted: VecDeque<u8>,
    accepted: u64,
    ended: bool,
}

impl Stdin {
    /// Reads standard input on a thread of its own, which is abandoned when the command ends: a read
    /// cannot be cancelled.
    pub(super) fn open() -> io::Result<Self> {
        let (send, read) = mpsc::channel(1);
        let builder = std::thread::Builder::new().name("stdin".to_owned());
        builder.spawn(move || {
            // A read in the background then fails with EIO instead of stopping the process.
            let _ = SigSet::from_iter([Signal::SIGTTIN]).thread_block();
            let mut stdin = io::stdin().lock();
            let mut buffer = vec![0; MAX_CHUNK_BYTES];
            loop {
                let got = match stdin.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // Not EOF: the user may bring the command to the foreground again.
                    Err(_) if terminal::is_in_background() => {
                        let _ = rustix::event::poll(&mut [], Some(&BACKGROUND_CHECK));
                        continue;
                    }
                    Ok(0) | Err(_) => return,
                    Ok(got) => got,
                };
                if send.blocking_send(buffer[..got].to_vec()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            read,
            unaccepted: VecDeque::new(),
            accepted: 0,
            ended: false,
        })
    }

    /// Returns whether more can be read now.
    pub(super) fn wants_more(&self) -> bool {
        !self.ended && self.unaccepted.len() < WINDOW_BYTES
    }

    /// Waits for the next bytes; `None` at EOF. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<AttachData> {
        let Some(data) = self.read.recv().await else {
            self.ended = true;
            return None;
        };
        let offset = self.end();
        self.unaccepted.extend(&data);
        Some(AttachData {
            offset,
            data: data.into(),
        })
    }

    /// Forgets the bytes before this offset.
    pub(super) fn accept(&mut self, offset: u64) {
        let count = usize::try_from(offset.saturating_sub(self.accepted)).unwrap_or(usize::MAX);
        self.unaccepted.drain(..count.min(self.unaccepted.len()));
        self.accepted = self.accepted.max(offset);
    }

    /// Returns the bytes that were read and not accepted.
    pub(super) fn unaccepted(&self) -> Vec<AttachData> {
        let bytes: Vec<u8> = self.unaccepted.iter().copied().collect();
        let chunks = bytes.chunks(MAX_CHUNK_BYTES);
        let offsets = (self.accepted..).step_by(MAX_CHUNK_BYTES);
        let data = offsets.zip(chunks).map(|(offset, chunk)| AttachData {
            offset,
            data: chunk.to_vec().into(),
        });
        data.collect()
    }

    /// Returns the offset of the end, if it was reached.
    pub(super) fn ended_at(&self) -> Option<u64> {
        self.ended.then(|| self.end())
    }

    fn end(&self) -> u64 {
        self.accepted + self.unaccepted.len() as u64
    }
}

/// Returns whether standard input may have anything to read: it is neither closed nor `/dev/null` nor
/// a terminal on which the command is in the background.
pub(super) fn is_useful() -> bool {
    /// The device number of `/dev/null`.
    const NULL: (u32, u32) = (1, 3);
    let Ok(stat) = rustix::fs::fstat(io::stdin()) else {
        return false;
    };
    let device = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let is_null = kind == rustix::fs::FileType::CharacterDevice && device == NULL;
    !is_null && !terminal::is_in_background()
}
