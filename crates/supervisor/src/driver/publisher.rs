//! The publisher: one thread that publishes changes in order, so that no caller waits for a disk.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::core::Change;

/// The receiver of changes. May block for a small write.
pub trait SupervisorEvents: Send + fmt::Debug + 'static {
    fn publish(&self, change: &Change);
}

#[derive(Debug)]
pub struct Publisher(Sender<Job>);

#[derive(Debug)]
enum Job {
    Publish(Change),
    Flush(Sender<()>),
}

impl Publisher {
    pub fn start(events: Box<dyn SupervisorEvents>) -> io::Result<Self> {
        let (sender, jobs): (_, Receiver<Job>) = channel();
        let builder = thread::Builder::new().name("service-events".to_owned());
        builder.spawn(move || {
            for job in jobs {
                match job {
                    Job::Publish(change) => events.publish(&change),
                    Job::Flush(done) => {
                        let _ = done.send(());
                    }
                }
            }
        })?;
        Ok(Self(sender))
    }

    pub fn publish(&self, change: Change) {
        let _ = self.0.send(Job::Publish(change));
    }

    pub fn flush(&self) {
        let (done, waited) = channel();
        let _ = self.0.send(Job::Flush(done));
        let _ = waited.recv();
    }
}
