//! `mainstay netstat`

use clap::Args;
use mainstay_api::machine::connect_record::{State, TimerActive};
use mainstay_api::machine::netstat_request::{Feature, Filter, L4proto, NetNs};
use mainstay_api::machine::{ConnectRecord, NetstatRequest};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::Table;

/// List the network sockets of the node
///
/// TCP and UDP with somebody at the other end, unless asked otherwise. Addresses are numbers
/// always; -n means --nodes here as everywhere.
#[derive(Debug, Args)]
#[command(
    visible_alias = "ss",
    after_help = "Examples:\n  \
    mainstay netstat -tlp                 who listens on TCP\n  \
    mainstay netstat -a -6                everything of IPv6\n  \
    mainstay netstat -ap --all-netns      of every container too\n  \
    mainstay netstat -o json | jq '.[].connectrecord[] | select(.txqueue > 0)'"
)]
pub struct Netstat {
    /// TCP
    #[arg(short, long)]
    tcp: bool,

    /// UDP
    #[arg(short, long)]
    udp: bool,

    /// UDP-Lite
    #[arg(short = 'U', long)]
    udplite: bool,

    /// Raw sockets
    #[arg(short = 'w', long)]
    raw: bool,

    /// Only IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// Only IPv6
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Only sockets that listen
    #[arg(short, long, conflicts_with = "all")]
    listening: bool,

    /// Sockets that listen too
    #[arg(short, long)]
    all: bool,

    /// The process that has the socket open
    #[arg(short, long)]
    programs: bool,

    /// User and inode too
    #[arg(short = 'x', long)]
    extend: bool,

    /// Timers too: what for, when in seconds, sent again, probes nobody answered
    #[arg(long)]
    timers: bool,

    /// Network namespaces by name, as in /run/netns, or net:[NUMBER]; comma-separated or repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    netns: Vec<String>,

    /// Every network namespace of the node
    #[arg(long, conflicts_with = "netns")]
    all_netns: bool,
}

impl Netstat {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let answers = client
            .call_all(self.request(), |mut machine, request| async move {
                machine.netstat(request).await
            })
            .await?;
        match global.output {
            Format::Table => {
                let mut table = Table::new(&self.header());
                for Answer { node, message } in answers {
                    for record in message.connectrecord {
                        table.row(self.row(&node, record));
                    }
                }
                output::print(&table.to_string())?;
            }
            format => output::print_answers(format, "machine.Netstat", &answers)?,
        }
        client.finish()
    }

    fn request(&self) -> NetstatRequest {
        let filter = match (self.all, self.listening) {
            (true, _) => Filter::All,
            (_, true) => Filter::Listening,
            _ => Filter::Connected,
        };
        let unnamed = !(self.tcp || self.udp || self.udplite || self.raw);
        let (v4, v6) = (!self.ipv6, !self.ipv4);
        let (tcp, udp) = (self.tcp || unnamed, self.udp || unnamed);
        NetstatRequest {
            filter: filter.into(),
            feature: Some(Feature { pid: self.programs }),
            l4proto: Some(L4proto {
                tcp: tcp && v4,
                tcp6: tcp && v6,
                udp: udp && v4,
                udp6: udp && v6,
                udplite: self.udplite && v4,
                udplite6: self.udplite && v6,
                raw: self.raw && v4,
                raw6: self.raw && v6,
            }),
            netns: Some(NetNs {
                hostnetwork: self.netns.is_empty(),
                netns: self.netns.clone(),
                allnetns: self.all_netns,
            }),
        }
    }

    fn shows_netns(&self) -> bool {
        self.all_netns || !self.netns.is_empty()
    }

    fn header(&self) -> Vec<&'static str> {
        let mut header = vec![
            "NODE", "PROTO", "RECV-Q", "SEND-Q", "LOCAL", "REMOTE", "STATE",
        ];
        if self.extend {
            header.extend(["UID", "INODE"]);
        }
        if self.programs {
            header.push("PID/PROGRAM");
        }
        if self.timers {
            header.push("TIMER");
        }
        if self.shows_netns() {
            header.push("NETNS");
        }
        header
    }

    fn row(&self, node: &str, record: ConnectRecord) -> Vec<String> {
        let mut row = vec![
            node.to_owned(),
            record.l4proto.clone(),
            record.rxqueue.to_string(),
            record.txqueue.to_string(),
            address(&record.localip, record.localport),
            address(&record.remoteip, record.remoteport),
            state(record.state()).to_owned(),
        ];
        if self.extend {
            row.extend([record.uid.to_string(), record.inode.to_string()]);
        }
        if self.programs {
            row.push(match &record.process {
                Some(process) if process.pid > 0 => format!("{}/{}", process.pid, process.name),
                _ => "-".to_owned(),
            });
        }
        if self.timers {
            row.push(timer(&record));
        }
        if self.shows_netns() {
            row.push(record.netns);
        }
        row
    }
}

/// `127.0.0.1:22`, `[::1]:22`, and `*` for any port.
fn address(ip: &str, port: u32) -> String {
    let ip = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    match port {
        0 => format!("{ip}:*"),
        port => format!("{ip}:{port}"),
    }
}

/// As `netstat` names it; a socket without connections and without a peer has none.
fn state(state: State) -> &'static str {
    match state {
        State::Reserved => "?",
        State::Close => "",
        State::Closewait => "CLOSE_WAIT",
        State::Lastack => "LAST_ACK",
        other => other.as_str_name(),
    }
}

/// `keepalive (5.12/0/0)`, as `netstat -o` shows it.
fn timer(record: &ConnectRecord) -> String {
    let kind = match record.tr() {
        TimerActive::Off => "off",
        TimerActive::On => "on",
        TimerActive::Keepalive => "keepalive",
        TimerActive::Timewait => "timewait",
        TimerActive::Probe => "probe",
    };
    let (seconds, hundredths) = (record.timerwhen / 100, record.timerwhen % 100);
    let (sent_again, unanswered) = (record.retrnsmt, record.timeout);
    format!("{kind} ({seconds}.{hundredths:02}/{sent_again}/{unanswered})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_told_apart_from_their_ports() {
        assert_eq!(address("127.0.0.1", 22), "127.0.0.1:22");
        assert_eq!(address("::", 0), "[::]:*");
        assert_eq!(address("::ffff:10.0.0.1", 443), "[::ffff:10.0.0.1]:443");
    }
}
