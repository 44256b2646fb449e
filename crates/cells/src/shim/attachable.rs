//! The standard input and the terminal of an executable, and the connections attached to them.
//!
//! Nothing here blocks: an attachment that does not read is sent no more until it does, and falls
//! behind in the output; standard input that the executable does not read is not accepted.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};

use super::attachment::{DaemonMessage, MAX_DATA_BYTES, ShimMessage, is_complete};
use super::protocol::{AttachRequest, Attached, Reply};

/// Attachments of one executable.
const MAX_ATTACHMENTS: usize = 8;
/// Standard input that is accepted before the executable reads it.
const MAX_PENDING_BYTES: usize = 64 * 1024;
/// Terminal output that is kept for attachments.
const KEPT_OUTPUT_BYTES: usize = 1 << 20;
/// The end-of-file character of a terminal.
const EOF_CHARACTER: u8 = 4;

/// The standard input and the terminal of one run, for clients to attach to.
pub(super) struct Attachable {
    /// The write end of its standard input, or the terminal; `None` once it is closed.
    input: Option<File>,
    pending: VecDeque<u8>,
    /// Bytes of standard input accepted so far.
    accepted: u64,
    closing: bool,
    terminal: Option<Terminal>,
    attachments: Vec<Attachment>,
    /// All output has been sent to an attachment after the end of the run.
    delivered: bool,
}

/// The master of a pseudoterminal, and its last output.
struct Terminal {
    master: File,
    kept: VecDeque<u8>,
    /// The offset of the byte after the last one kept.
    end: u64,
}

struct Attachment {
    stream: UnixStream,
    received: Vec<u8>,
    /// An encoded message, as far as it is not sent yet.
    unsent: VecDeque<u8>,
    /// The offset of the next byte of output to send.
    position: u64,
    has_stdin: bool,
    /// The number of accepted bytes that it knows of.
    acknowledged: u64,
    ended: bool,
    closed: bool,
}

impl Attachable {
    /// Of a run whose standard input is a pipe. `input` must be non-blocking.
    pub(super) fn of_pipe(input: File) -> Self {
        Self {
            input: Some(input),
            pending: VecDeque::new(),
            accepted: 0,
            closing: false,
            terminal: None,
            attachments: Vec::new(),
            delivered: false,
        }
    }

    /// Of a run on a terminal. `master` must be non-blocking.
    pub(super) fn of_terminal(master: File) -> io::Result<Self> {
        let terminal = Terminal {
            master: master.try_clone()?,
            kept: VecDeque::new(),
            end: 0,
        };
        Ok(Self {
            terminal: Some(terminal),
            ..Self::of_pipe(master)
        })
    }

    /// Keeps terminal output for attachments.
    pub(super) fn keep_output(&mut self, bytes: &[u8]) {
        if let Some(terminal) = &mut self.terminal {
            terminal.kept.extend(bytes);
            terminal.end += bytes.len() as u64;
            let surplus = terminal.kept.len().saturating_sub(KEPT_OUTPUT_BYTES);
            terminal.kept.drain(..surplus);
        }
    }

    /// Attaches a connection whose request has been read, and replies.
    pub(super) fn attach(&mut self, stream: UnixStream, request: &AttachRequest) {
        self.attachments.retain(|attachment| !attachment.closed);
        if self.attachments.len() >= MAX_ATTACHMENTS {
            let _ = Reply::TooManyAttachments.send(&stream, request.version);
            return;
        }
        let position = self.terminal.as_ref().map_or(0, |terminal| {
            request.output_offset.clamp(terminal.start(), terminal.end)
        });
        let attached = Attached {
            stdin_accepted: self.accepted,
            output_offset: position,
        };
        let replied = Reply::Attached(attached).send(&stream, request.version);
        if replied.is_err() || stream.set_nonblocking(true).is_err() {
            return;
        }
        if request.stdin {
            for other in self.attachments.iter_mut().filter(|other| other.has_stdin) {
                other.has_stdin = false;
                other.unsent.extend(ShimMessage::Replaced.encode());
            }
        }
        self.attachments.push(Attachment {
            stream,
            received: Vec::new(),
            unsent: VecDeque::new(),
            position,
            has_stdin: request.stdin,
            acknowledged: self.accepted,
            ended: false,
            closed: false,
        });
    }

    /// The file descriptors to wait for.
    pub(super) fn poll_fds<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        if let (Some(input), false) = (&self.input, self.pending.is_empty()) {
            fds.push(PollFd::new(input, PollFlags::OUT));
        }
        let room = self.has_room();
        for attachment in &self.attachments {
            let mut events = PollFlags::empty();
            if room || !attachment.has_stdin {
                events |= PollFlags::IN;
            }
            if !attachment.unsent.is_empty() {
                events |= PollFlags::OUT;
            }
            // A hang-up is reported even if nothing is asked for: one that cannot be handled before
            // there is room would be reported again at once, for ever.
            if !events.is_empty() {
                fds.push(PollFd::new(&attachment.stream, events));
            }
        }
    }

    /// Moves whatever can be moved without blocking.
    pub(super) fn serve(&mut self, run_has_ended: bool, buffer: &mut [u8]) {
        if run_has_ended {
            self.input = None;
            self.pending.clear();
        }
        loop {
            for index in 0..self.attachments.len() {
                self.receive(index, buffer);
            }
            self.write_input();
            // What was received while there was no room is not announced again.
            if !self.has_room() || !self.has_unhandled_input() {
                break;
            }
        }
        for attachment in &mut self.attachments {
            attachment.send(self.terminal.as_ref(), self.accepted, run_has_ended);
            self.delivered |= attachment.ended && attachment.unsent.is_empty();
        }
        self.attachments.retain(|attachment| !attachment.closed);
    }

    /// Returns whether it must be kept after the end of the run, for attachments to come or present.
    pub(super) fn is_wanted(&self) -> bool {
        !self.attachments.is_empty() || self.terminal.is_some() && !self.delivered
    }

    fn has_unhandled_input(&self) -> bool {
        let mut open = self.attachments.iter().filter(|one| !one.closed);
        open.any(|attachment| attachment.has_stdin && is_complete(&attachment.received))
    }

    fn has_room(&self) -> bool {
        self.pending.len() < MAX_PENDING_BYTES
    }

    fn receive(&mut self, index: usize, buffer: &mut [u8]) {
        loop {
            let has_stdin = self.attachments[index].has_stdin;
            if self.attachments[index].closed || has_stdin && !self.has_room() {
                return;
            }
            let attachment = &mut self.attachments[index];
            match DaemonMessage::take(&mut attachment.received) {
                Ok(Some(message)) => {
                    let has_stdin = attachment.has_stdin;
                    if self.handle(message, has_stdin).is_err() {
                        self.attachments[index].closed = true;
                        return;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(_) => {
                    attachment.closed = true;
                    return;
                }
            }
            let length = buffer.len().min(MAX_DATA_BYTES);
            match attachment.stream.read(&mut buffer[..length]) {
                Ok(0) => {
                    attachment.closed = true;
                    return;
                }
                Ok(got) => attachment.received.extend_from_slice(&buffer[..got]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    attachment.closed = true;
                    return;
                }
            }
        }
    }

    fn handle(&mut self, message: DaemonMessage, has_stdin: bool) -> io::Result<()> {
        match message {
            DaemonMessage::Stdin { offset, data } if has_stdin => {
                // What was accepted before a reconnect is sent again.
                let known = self.accepted.checked_sub(offset);
                let known = known.ok_or(ErrorKind::InvalidData)?;
                let skip = usize::try_from(known).unwrap_or(usize::MAX).min(data.len());
                if self.input.is_some() && !self.closing {
                    self.pending.extend(&data[skip..]);
                }
                self.accepted += (data.len() - skip) as u64;
            }
            DaemonMessage::CloseStdin { offset } if has_stdin => {
                if offset != self.accepted {
                    return Err(ErrorKind::InvalidData.into());
                }
                if self.terminal.is_some() && !self.closing {
                    self.pending.push_back(EOF_CHARACTER);
                }
                self.closing = true;
            }
            // Sent before it knew that another one has taken over.
            DaemonMessage::Stdin { .. } | DaemonMessage::CloseStdin { .. } => {}
            DaemonMessage::Resize { rows, columns } => {
                if let Some(terminal) = &self.terminal {
                    let _ = super::pty::resize(&terminal.master, rows, columns);
                }
            }
        }
        Ok(())
    }

    fn write_input(&mut self) {
        while let (Some(input), false) = (&mut self.input, self.pending.is_empty()) {
            match input.write(self.pending.as_slices().0) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Nobody reads it any more.
                Err(_) => {
                    self.input = None;
                    self.pending.clear();
                }
            }
        }
        if self.closing && self.pending.is_empty() {
            self.input = None;
        }
    }
}

impl Terminal {
    /// The offset of the first byte kept.
    fn start(&self) -> u64 {
        self.end - self.kept.len() as u64
    }
}

impl Attachment {
    fn send(&mut self, terminal: Option<&Terminal>, accepted: u64, run_has_ended: bool) {
        loop {
            if self.unsent.is_empty() && !self.encode_next(terminal, accepted, run_has_ended) {
                return;
            }
            match self.stream.write(self.unsent.as_slices().0) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.closed = true;
                    return;
                }
            }
        }
    }

    /// Encodes the next message; `false` if there is none.
    fn encode_next(
        &mut self,
        terminal: Option<&Terminal>,
        accepted: u64,
        run_has_ended: bool,
    ) -> bool {
        if self.closed || self.ended {
            return false;
        }
        if accepted > self.acknowledged {
            self.acknowledged = accepted;
            let message = ShimMessage::StdinAccepted { total: accepted };
            self.unsent.extend(message.encode());
            return true;
        }
        if let Some(terminal) = terminal
            && self.position < terminal.end
        {
            let offset = self.position.max(terminal.start());
            let skip = usize::try_from(offset - terminal.start()).unwrap_or(usize::MAX);
            let left = terminal.kept.range(skip..);
            let data: Vec<u8> = left.take(MAX_DATA_BYTES).copied().collect();
            self.position = offset + data.len() as u64;
            self.unsent
                .extend(ShimMessage::Output { offset, data }.encode());
            return true;
        }
        if run_has_ended {
            self.ended = true;
            self.unsent.extend(ShimMessage::Ended.encode());
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{Timespec, poll};

    use super::*;
    use crate::shim::output_pipe::input_pipe;
    use crate::shim::protocol::VERSION;

    /// The number of file descriptors that a wait would return at once.
    fn ready(attachable: &Attachable) -> usize {
        let mut fds = Vec::new();
        attachable.poll_fds(&mut fds);
        poll(&mut fds, Some(&Timespec::default())).unwrap()
    }

    #[test]
    fn a_client_that_hangs_up_while_its_stdin_waits_causes_no_busy_loop() {
        let (mut reader, writer) = input_pipe().unwrap();
        let mut attachable = Attachable::of_pipe(writer);
        let (mut client, stream) = UnixStream::pair().unwrap();
        let request = AttachRequest {
            version: VERSION,
            name: "x".parse().unwrap(),
            started: 0,
            output_offset: 0,
            stdin: true,
        };
        attachable.attach(stream, &request);
        let mut buffer = vec![0; MAX_DATA_BYTES];
        let mut offset = 0;
        while attachable.has_room() {
            let data = vec![0; MAX_DATA_BYTES];
            let message = DaemonMessage::Stdin { offset, data };
            client.write_all(&message.encode()).unwrap();
            offset += MAX_DATA_BYTES as u64;
            attachable.serve(false, &mut buffer);
        }
        drop(client);
        assert_eq!(ready(&attachable), 0);
        // The hang-up is noticed as soon as the executable reads.
        while !attachable.attachments.is_empty() {
            assert!(reader.read(&mut buffer).unwrap() > 0);
            attachable.serve(false, &mut buffer);
        }
    }
}
