//! How long it takes from making the process to the first answer: on a state directory that is
//! there, as after an upgrade or a reboot, and on none, when a certificate authority is made.

use anyhow::Result;
use mainstay_testkit::TlsClient;

use super::{Server, Setup};
use crate::client::connect;
use crate::floor::Floor;
use crate::report::{Report, Target};
use crate::stats::Samples;

const TARGET_MS: f64 = 100.0;

/// The times of several starts of the same kind.
#[derive(Default)]
struct Starts {
    ready: Samples,
    answered: Samples,
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let (starts, first_starts) = setup.pick((20, 5), (3, 1));
    let mut report = Report::new(
        "start",
        format!("from spawn to ready and to the first Version; {starts} starts, in turns"),
    );
    let (mut warm, mut floor, mut first) =
        (Starts::default(), Starts::default(), Starts::default());

    let node = setup.node();
    let (tls, listen) = (node.admin().tls_client()?, node.listen().to_string());
    let mut stopped = node.into_builder();
    for _ in 0..starts {
        // On another port the node would have to issue its client configuration anew.
        let node = stopped.arg("--listen").arg(&listen).start();
        warm.add(Server::from(&node), &tls).await?;
        stopped = node.into_builder();
        let peer = Floor::start(&stopped.state())?;
        floor.add(Server::from(&peer), &tls).await?;
    }
    for _ in 0..first_starts {
        let node = setup.node();
        let tls = node.admin().tls_client()?;
        first.add(Server::from(&node), &tls).await?;
    }

    warm.show(&mut report, "mainstay, state is there");
    floor.show(&mut report, "floor");
    first.show(&mut report, "mainstay, first start");
    report.compare(
        "start to the first answer, p50",
        warm.answered.percentile_us(50) / 1e3,
        " ms",
        Some(Target::AtMost(TARGET_MS)),
    );
    report.ratio(
        "start to the first answer, p50 against the floor",
        warm.answered.percentile_us(50) / floor.answered.percentile_us(50),
        None,
    );
    Ok(report)
}

impl Starts {
    async fn add(&mut self, server: Server<'_>, tls: &TlsClient) -> Result<()> {
        let mut client = connect(tls, server.address).await?;
        client.version(()).await?;
        self.answered.push(server.process.age());
        self.ready.push(server.process.ready_after());
        Ok(())
    }

    fn show(&mut self, report: &mut Report, subject: &str) {
        report.figure(subject, "ready p50 ms", self.ready.percentile_us(50) / 1e3);
        let answered = &mut self.answered;
        report.figure(subject, "answer p50 ms", answered.percentile_us(50) / 1e3);
        report.figure(
            subject,
            "answer worst ms",
            answered.percentile_us(100) / 1e3,
        );
    }
}
