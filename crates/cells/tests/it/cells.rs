//! The lifecycle of cells.

use mainstay_cells::{CellError, CellSpec, ExitStatus};

use crate::harness::{TestCells, name};

#[tokio::test]
async fn an_executable_runs_in_its_own_namespaces_and_leaves_nothing() {
    let test = TestCells::new("lifecycle");
    test.allocate("a").await;
    let script =
        "sh -c 'echo $$; hostname; ls /proc | grep -c ^[0-9]; cat /proc/self/cgroup; exit 7'";
    let (how, text) = test.run("a", "one", script).await;
    assert_eq!(how, ExitStatus::Exited(7), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "a", "{text}");
    test.cells.free(name("a")).await.unwrap();
    assert_eq!(test.left(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn unknown_and_existing_names_are_refused() {
    let test = TestCells::new("errors");
    let missing = test.cells.free(name("a")).await.unwrap_err();
    assert!(matches!(missing, CellError::NoSuchCell { .. }), "{missing}");
    test.allocate("a").await;
    let twice = test
        .cells
        .allocate(name("a"), CellSpec::default())
        .await
        .unwrap_err();
    assert!(matches!(twice, CellError::CellExists { .. }), "{twice}");
    let orphan = test
        .cells
        .allocate(name("b/c"), CellSpec::default())
        .await
        .unwrap_err();
    assert!(matches!(orphan, CellError::NoSuchCell { .. }), "{orphan}");
    let nothing = test.start("a", "x", "/no/such/program").await.unwrap_err();
    assert!(
        matches!(nothing, CellError::ProgramNotFound { .. }),
        "{nothing}"
    );
    let forbidden = test.start("a", "x", "/etc/passwd").await.unwrap_err();
    assert!(
        matches!(forbidden, CellError::ProgramNotPermitted { .. }),
        "{forbidden}"
    );
    test.start("a", "x", "sleep 1000").await.unwrap();
    let again = test.start("a", "x", "sleep 1000").await.unwrap_err();
    assert!(matches!(again, CellError::AlreadyRunning { .. }), "{again}");
    let unknown = test.stop("a", "y").await.unwrap_err();
    assert!(
        matches!(unknown, CellError::NoSuchExecutable { .. }),
        "{unknown}"
    );
    test.stop("a", "x").await.unwrap();
    test.stop("a", "x").await.unwrap();
    test.cells.free(name("a")).await.unwrap();
    assert_eq!(test.left(), Vec::<std::path::PathBuf>::new());
}
