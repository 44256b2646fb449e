//! The compiler against libpcap: for every expression of `data/libpcap.txt`, our program and the one
//! that libpcap 1.10 compiled give the same verdict on any packet.

use std::sync::LazyLock;

use super::interpreter::run;
use super::*;
use proptest::prelude::*;
use proptest::sample::select;

/// `LINK|EXPRESSION|OP,JT,JF,K;…` per line.
const LIBPCAP: &str = include_str!("data/libpcap.txt");

struct Case {
    link: LinkType,
    expression: &'static str,
    ours: Vec<Instruction>,
    theirs: Vec<Instruction>,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases);

fn cases() -> Vec<Case> {
    let case = |line: &'static str| {
        let (link, rest) = line.split_once('|').unwrap();
        let (expression, theirs) = rest.rsplit_once('|').unwrap();
        let link = match link {
            "ethernet" => LinkType::Ethernet,
            _ => LinkType::Raw,
        };
        let theirs = theirs.split(';').map(|instruction| {
            let numbers: Vec<u32> = instruction.split(',').map(|n| n.parse().unwrap()).collect();
            Instruction {
                op: numbers[0].try_into().unwrap(),
                jt: numbers[1].try_into().unwrap(),
                jf: numbers[2].try_into().unwrap(),
                k: numbers[3],
            }
        });
        Case {
            link,
            expression,
            ours: compile(expression, link, 65536).unwrap(),
            theirs: theirs.collect(),
        }
    };
    LIBPCAP.lines().map(case).collect()
}

fn v4() -> impl Strategy<Value = [u8; 4]> {
    select(vec![
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        [192, 168, 1, 7],
        [8, 8, 8, 8],
    ])
}

fn v6() -> impl Strategy<Value = [u8; 16]> {
    let of = |last| {
        let mut address = [0; 16];
        address[0] = 0xfd;
        address[15] = last;
        address
    };
    select(vec![of(1), of(2), of(9), [1; 16]])
}

fn port() -> impl Strategy<Value = u16> {
    select(vec![22, 53, 60, 80, 99, 443, 9000])
}

fn transport() -> impl Strategy<Value = u8> {
    select(vec![1, 6, 17, 44, 58, 132, 200])
}

fn ip() -> impl Strategy<Value = Vec<u8>> {
    let fragment = select(vec![0_u16, 0x4000, 0x2000, 1, 0x20ff]);
    (5_u8..16, fragment, transport(), v4(), v4(), port(), port()).prop_map(
        |(words, fragment, protocol, source, destination, from, to)| {
            let mut packet = vec![0x40 | words, 0, 0, 0, 0, 0];
            packet.extend(fragment.to_be_bytes());
            packet.extend([64, protocol, 0, 0]);
            packet.extend(source);
            packet.extend(destination);
            packet.resize(usize::from(words) * 4, 0);
            packet.extend(from.to_be_bytes());
            packet.extend(to.to_be_bytes());
            packet
        },
    )
}

fn ip6() -> impl Strategy<Value = Vec<u8>> {
    let inner = transport();
    (transport(), inner, v6(), v6(), port(), port()).prop_map(
        |(protocol, inner, source, destination, from, to)| {
            let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            packet.extend(source);
            packet.extend(destination);
            if protocol == 44 {
                packet.extend([inner, 0, 0, 0, 0, 0, 0, 0]);
            }
            packet.extend(from.to_be_bytes());
            packet.extend(to.to_be_bytes());
            packet
        },
    )
}

fn arp() -> impl Strategy<Value = Vec<u8>> {
    (v4(), v4()).prop_map(|(source, destination)| {
        let mut packet = vec![0; 14];
        packet.extend(source);
        packet.extend([0; 6]);
        packet.extend(destination);
        packet
    })
}

/// A packet without its link header, by its Ethernet type. It has all of its headers: on a packet
/// that was cut, a program rejects at its first load beyond the end, and libpcap reorders loads.
fn packet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let any_bytes = proptest::collection::vec(any::<u8>(), 80..120);
    let kinds = prop_oneof![
        4 => ip().prop_map(|packet| (0x0800, packet)),
        4 => ip6().prop_map(|packet| (0x86dd, packet)),
        2 => arp().prop_flat_map(|packet| (select(vec![0x0806_u16, 0x8035]), Just(packet))),
        1 => (any::<u16>(), any_bytes),
    ];
    (kinds, 0_usize..60).prop_map(|((kind, mut packet), padding)| {
        packet.resize(packet.len() + padding, 0);
        (kind, packet)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn verdicts_are_those_of_libpcap((kind, packet) in packet()) {
        let mut frame = vec![2; 12];
        frame.extend(kind.to_be_bytes());
        frame.extend(&packet);
        for case in CASES.iter() {
            let seen = match case.link {
                LinkType::Ethernet => &frame,
                LinkType::Raw => &packet,
            };
            let (ours, theirs) = (run(&case.ours, seen), run(&case.theirs, seen));
            prop_assert_eq!(ours != 0, theirs != 0, "{} {}", case.link, case.expression);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(tcp|udp|not|and|or|host|net|port|src|dst|[0-9.:/]{1,6}|[()!&|]| ){0,30}") {
        let _ = compile(&text, LinkType::Ethernet, 100);
        let _ = compile(&text, LinkType::Raw, 100);
    }
}

#[test]
fn long_filters_jump_further_than_a_comparison_reaches() {
    for joined in [" and ", " or "] {
        let ports: Vec<_> = (1..=90).map(|port| format!("port {port}")).collect();
        let program = compile(&ports.join(joined), LinkType::Ethernet, 65536).unwrap();
        assert!(program.len() > 255);
        let packet = |to: u8| {
            let mut frame = vec![0; 12];
            frame.extend([8, 0, 0x45]);
            frame.resize(23, 0);
            frame.push(6);
            frame.resize(34, 0);
            frame.extend([0, 0, 0, to]);
            frame
        };
        assert_eq!(run(&program, &packet(90)) != 0, joined == " or ");
        assert_eq!(run(&program, &packet(1)) != 0, joined == " or ");
        assert_eq!(run(&program, &packet(200)), 0);
    }
}

#[test]
fn what_is_not_supported_is_refused_with_the_word() {
    for (text, word) in [
        ("", "ends"),
        ("tcp and", "ends"),
        ("(tcp", "closing"),
        ("tcp)", "\")\""),
        ("tcp tcp", "\"tcp\""),
        ("vlan 5", "\"vlan\""),
        ("tcp[13] & 2 != 0", "tcp[13]"),
        ("port http", "\"http\""),
        ("port 70000", "70000"),
        ("portrange 1-b", "\"b\""),
        ("host example.org", "example.org"),
        ("net 10.0.0.1/8", "10.0.0.1/8"),
        ("net 10.0.0.0/33", "/33"),
        ("ip host ::1", "::1"),
        ("tcp host 10.0.0.1", "\"host\""),
        ("ip port 80", "\"port\""),
        ("src tcp", "\"tcp\""),
        ("icmp port 1", "\"port\""),
    ] {
        let said = compile(text, LinkType::Ethernet, 100)
            .unwrap_err()
            .to_string();
        assert!(said.contains(word), "{text}: {said}");
    }
    assert_eq!(
        compile("arp", LinkType::Raw, 100),
        Err(BadFilter::NotOnLink("arp"))
    );
    let deep = "not ".repeat(3000) + "tcp";
    assert_eq!(compile(&deep, LinkType::Raw, 1), Err(BadFilter::TooDeep));
    let long = "tcp or ".repeat(3000) + "tcp";
    assert_eq!(compile(&long, LinkType::Raw, 1), Err(BadFilter::TooLong));
    let many = vec!["port 1"; 400].join(" or ");
    let refused = compile(&many, LinkType::Ethernet, 1);
    assert!(
        matches!(refused, Err(BadFilter::TooLarge(_))),
        "{refused:?}"
    );
}
