//! `mainstay pcap`

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mainstay_api::common::Data;
use mainstay_api::machine::{BpfInstruction, PacketCaptureRequest};
use mainstay_capture::filter::compile;
use mainstay_capture::{Decoder, Instruction, Item, LinkType, PcapngEncoder, parse_program};
use mainstay_client::format::{counted, parse_duration};
use tokio::signal::unix::{SignalKind, signal};
use tonic::Streaming;

use super::connect;
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, warn};

/// Capture packets of a network interface, as pcapng
///
/// The capture goes to FILE, or to stdout for another program. It ends with Ctrl-C, --count or
/// --duration. The node drops packets rather than delay them; the summary counts those.
#[derive(Debug, Args)]
#[command(
    visible_alias = "tcpdump",
    after_help = "Examples:\n  \
    mainstay pcap -i eth0 -w eth0.pcapng -- tcp port 443 and host 10.0.0.7\n  \
    mainstay pcap -i eth0 --count 100 -- not port 50000 | tcpdump -r -\n  \
    mainstay pcap -i eth0 --duration 30s -w all.pcapng --bpf \"$(tcpdump -dd -y EN10MB 'vlan 5')\"\n\n\
    Exclude the traffic of the capture itself, as with not port 50000, on the interface that the\n\
    node is called through.\n\n\
    Filters are those of tcpdump: ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, host ADDRESS,\n\
    net ADDRESS/BITS, port N, portrange N-M, less N and greater N, with src and dst, joined by\n\
    and, or, not and parentheses. --bpf takes any other as tcpdump compiles it."
)]
pub struct Pcap {
    /// Interface of the node
    #[arg(short, long, value_name = "NAME")]
    interface: String,

    /// Write to FILE instead of stdout
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// End after N packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this TIME
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Keep at most N bytes of each packet
    #[arg(short, long, value_name = "N", default_value_t = 65536,
          value_parser = clap::value_parser!(u32).range(1..=262_144))]
    snaplen: u32,

    /// Also capture packets for other hosts (promiscuous mode)
    #[arg(long)]
    promiscuous: bool,

    /// Filter program as tcpdump -dd prints it, instead of a filter
    #[arg(long, value_name = "PROGRAM", conflicts_with = "filter")]
    bpf: Option<String>,

    /// Link type for which the filter is compiled
    #[arg(long, value_enum, default_value_t = Link::Ethernet)]
    link_type: Link,

    /// Filter, in the language of tcpdump
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Link {
    /// Ethernet and loopback
    Ethernet,
    /// Tunnels without a link-layer header, such as WireGuard
    Raw,
}

impl From<Link> for LinkType {
    fn from(link: Link) -> Self {
        match link {
            Link::Ethernet => Self::Ethernet,
            Link::Raw => Self::Raw,
        }
    }
}

/// The file written so far.
struct Written<W> {
    out: W,
    encoder: PcapngEncoder,
    decoder: Decoder,
    packets: u64,
    dropped: u64,
}

impl Pcap {
    pub async fn run(self, global: &Global) -> Outcome {
        if global.output != Format::Table {
            let message = "pcap writes pcapng; -o does not apply to it";
            return Err(Failure::new(Exit::Usage, message));
        }
        let program = self.program()?;
        if self.write.is_none() && std::io::stdout().is_terminal() {
            let message = "stdout is a terminal; write to a file with -w FILE, or pipe into \
                           another program, such as tcpdump -r -";
            return Err(Failure::new(Exit::Usage, message));
        }
        let client = connect(global).await?;
        client.only_node("pcap")?;
        let mut machine = client.machine();
        let request = client.request(PacketCaptureRequest {
            interface: self.interface.clone(),
            promiscuous: self.promiscuous,
            snap_len: self.snaplen,
            bpf_filter: program.into_iter().map(on_the_wire).collect(),
            pcapng: true,
        });
        let stream = client.within(machine.packet_capture(request)).await?;
        let stream = stream.into_inner();
        match &self.write {
            // Created only once there is something to write into it.
            Some(path) => {
                let file = File::create(path).map_err(|error| {
                    let message = format!("cannot write {}: {error}", path.display());
                    Failure::new(Exit::Failed, message)
                })?;
                self.write_to(&client, stream, file).await
            }
            None => self.write_to(&client, stream, std::io::stdout()).await,
        }
    }

    fn program(&self) -> Outcome<Vec<Instruction>> {
        let usage = |error: &dyn std::error::Error| Failure::new(Exit::Usage, error.to_string());
        if let Some(program) = &self.bpf {
            return parse_program(program).map_err(|error| usage(&error));
        }
        let filter = self.filter.join(" ");
        if filter.trim().is_empty() {
            return Ok(Vec::new());
        }
        let link = self.link_type.into();
        compile(&filter, link, self.snaplen).map_err(|error| usage(&error))
    }

    async fn write_to(
        &self,
        client: &Connection,
        mut stream: Streaming<Data>,
        out: impl Write,
    ) -> Outcome {
        let mut written = Written {
            out: BufWriter::new(out),
            encoder: PcapngEncoder::default(),
            decoder: Decoder::default(),
            packets: 0,
            dropped: 0,
        };
        // Registered before the header is written, which says that the capture runs.
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut over = std::pin::pin!(after(self.duration));
        let outcome = loop {
            let data = tokio::select! {
                data = stream.message() => data,
                _ = interrupted.recv() => break Ok(()),
                _ = terminated.recv() => break Ok(()),
                () = &mut over => break Ok(()),
            };
            match data {
                Ok(Some(data)) => {
                    if client.report(data.metadata.as_ref()) {
                        break client.finish();
                    }
                    match self.chunk(&mut written, &data.bytes) {
                        Ok(false) => {}
                        Ok(true) => break Ok(()),
                        Err(failure) => break Err(failure),
                    }
                }
                Ok(None) => break client.finish(),
                Err(status) => break Err(status.into()),
            }
        };
        // What was captured is kept, whatever ended it.
        written
            .out
            .flush()
            .map_err(|error| self.write_failure(error))?;
        let (packets, dropped) = (written.packets, written.dropped);
        let packets = counted(packets, "packet");
        anstream::eprintln!("{packets} captured, {dropped} dropped by the node");
        outcome
    }

    fn write_failure(&self, error: std::io::Error) -> Failure {
        match &self.write {
            Some(path) => Failure::file("write", path, &error),
            None => Failure::stdout(error),
        }
    }

    /// Writes a part of the stream; returns whether the capture is complete.
    fn chunk<W: Write>(&self, written: &mut Written<W>, bytes: &[u8]) -> Outcome<bool> {
        written.decoder.push(bytes);
        loop {
            let item = written.decoder.next_item();
            let item = item.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
            match item {
                None => break,
                Some(Item::Interface { link, snap_len }) => {
                    let link = self.link(link)?;
                    written.encoder.start(&self.interface, link, snap_len);
                }
                Some(Item::Packet(packet)) => {
                    written.encoder.packet(packet);
                    written.packets += 1;
                    if Some(written.packets) == self.count {
                        break;
                    }
                }
                Some(Item::Statistics(at, statistics)) => {
                    written.encoder.statistics(at, statistics);
                    if statistics.dropped > written.dropped && written.dropped == 0 {
                        warn("the node drops packets; narrow the filter or lower --snaplen");
                    }
                    written.dropped = statistics.dropped;
                }
            }
        }
        let encoded = written.encoder.take();
        let written_all = written.out.write_all(&encoded);
        written_all.map_err(|error| self.write_failure(error))?;
        written
            .out
            .flush()
            .map_err(|error| self.write_failure(error))?;
        Ok(Some(written.packets) == self.count)
    }

    /// Checks that the filter was compiled for the link type of the packets.
    fn link(&self, number: u16) -> Outcome<LinkType> {
        let Some(link) = LinkType::from_number(number) else {
            let message = format!("the node sends packets of unknown link type {number}");
            return Err(Failure::new(Exit::Failed, message));
        };
        if !self.filter.is_empty() && link != self.link_type.into() {
            let interface = &self.interface;
            let message = format!(
                "interface {interface} has link type {link}; repeat with --link-type {link}"
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        Ok(link)
    }
}

/// Waits for the duration, or for ever.
async fn after(duration: Option<Duration>) {
    match duration {
        Some(duration) => {
            // The timeout of a future that never ends: a wait that is not a sleep.
            let _ = tokio::time::timeout(duration, std::future::pending::<()>()).await;
        }
        None => std::future::pending().await,
    }
}

fn on_the_wire(instruction: Instruction) -> BpfInstruction {
    BpfInstruction {
        op: instruction.op.into(),
        jt: instruction.jt.into(),
        jf: instruction.jf.into(),
        k: instruction.k,
    }
}
