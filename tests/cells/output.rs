//! The output of executables as clients get it.

use mainstay_api::observe::LogItem;

use super::cell_node::CellNode;

#[tokio::test]
async fn a_million_lines_come_complete_and_in_order() {
    const LINES: usize = 1_000_000;
    let test = CellNode::start("million");
    test.allocate("a", &[]).await;
    let pid = test.start_in("a", "x", &format!("seq {LINES}")).await;
    let items = test.output(pid, 0).await;
    assert_eq!(items.len(), LINES);
    for (item, number) in items.iter().zip(1..) {
        assert_eq!(item.line, number.to_string());
        assert_eq!(item.channel, "x::stdout");
    }
    assert!(items.is_sorted_by_key(|item| item.timestamp));
    assert_eq!(test.executable("a", "x").await.exit_code, 0);
    test.finish().await;
}

#[tokio::test]
async fn runs_of_one_executable_are_distinguished_by_pid() {
    let test = CellNode::start("runs");
    test.allocate("a", &[]).await;
    let mut pids = Vec::new();
    for word in ["one", "two", "three"] {
        let command = format!("sh -c 'echo {word}; echo {word}! >&2'");
        let pid = test.start_in("a", "x", &command).await;
        // Returns at its end, so that the name is free again.
        assert_eq!(test.output(pid, 0).await.len(), 1);
        pids.push(pid);
    }
    for (pid, word) in pids.iter().zip(["one", "two", "three"]) {
        for (channel, name, line) in [
            (0, "stdout", word.to_owned()),
            (1, "stderr", format!("{word}!")),
        ] {
            let items = test.output(*pid, channel).await;
            assert_eq!(items.len(), 1, "{items:?}");
            assert_eq!(items[0].line, line);
            assert_eq!(items[0].channel, format!("x::{name}"));
        }
    }
    assert_eq!(test.executable("a", "x").await.runs, 3);
    test.finish().await;
}

#[tokio::test]
async fn a_line_larger_than_a_message_is_split() {
    const BYTES: usize = 10 << 20;
    let test = CellNode::start("long-line");
    test.allocate("a", &[]).await;
    // Text, and bytes that are none and take more room in an answer.
    for (byte, octal) in [(b'x', "170"), (0xff, "377")] {
        let flood = format!("head -c {BYTES} /dev/zero | tr \"\\0\" \"\\{octal}\"");
        let command = format!("sh -c '{flood}; echo; echo end'");
        let pid = test.start_in("a", "x", &command).await;
        let items = test.output(pid, 0).await;
        let (end, parts) = items.split_last().unwrap();
        assert_eq!(end.line, "end");
        let bytes_of = |item: &LogItem| match item.raw.as_ref() {
            [] => item.line.clone().into_bytes(),
            raw => raw.to_vec(),
        };
        let line: Vec<u8> = parts.iter().flat_map(bytes_of).collect();
        assert_eq!(line.len(), BYTES);
        assert!(line.iter().all(|seen| *seen == byte));
    }
    test.finish().await;
}
