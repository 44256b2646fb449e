//! The results of a benchmark: a table for people, JSON for machines.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use mainstay_testkit::procfs;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Report {
    name: &'static str,
    /// One line on what was measured, and how.
    about: String,
    figures: Vec<Figure>,
    comparisons: Vec<Comparison>,
}

/// One number about one of the compared.
#[derive(Debug, Serialize)]
struct Figure {
    subject: String,
    measure: &'static str,
    value: f64,
}

#[derive(Debug, Serialize)]
struct Comparison {
    what: String,
    value: f64,
    unit: &'static str,
    target: Option<Target>,
    met: Option<bool>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// The content of the file: the report and the circumstances of the run.
#[derive(Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    report: &'a Report,
    quick: bool,
    cores: usize,
    kernel: String,
    /// Of the last minute. Well above what the benchmark itself needs, something disturbed it.
    load_average: f64,
}

impl Report {
    pub fn new(name: &'static str, about: impl Into<String>) -> Self {
        Self {
            name,
            about: about.into(),
            figures: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    /// `measure` carries its unit, such as `p50 µs`.
    pub fn figure(&mut self, subject: &str, measure: &'static str, value: f64) {
        self.figures.push(Figure {
            subject: subject.to_owned(),
            measure,
            value,
        });
    }

    /// A value of the first as a multiple of the other's.
    pub fn ratio(&mut self, what: &str, value: f64, target: Option<Target>) {
        self.compare(what, value, "×", target);
    }

    /// A figure that has a target of its own.
    pub fn compare(&mut self, what: &str, value: f64, unit: &'static str, target: Option<Target>) {
        self.comparisons.push(Comparison {
            what: what.to_owned(),
            value,
            unit,
            target,
            met: target.map(|target| target.is_met_by(value)),
        });
    }

    /// Writes the report to its file in `folder`.
    pub fn keep(&self, folder: &Path, quick: bool) -> Result<PathBuf> {
        let kept = Kept {
            report: self,
            quick,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: procfs::release(),
            load_average: procfs::load_average(),
        };
        let path = folder.join(format!("{}.json", self.name));
        let json = serde_json::to_vec_pretty(&kept)?;
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, json))
            .with_context(|| format!("cannot write the results to {}", path.display()))?;
        Ok(path)
    }

    fn measures(&self) -> Vec<&'static str> {
        let mut measures = Vec::new();
        for figure in &self.figures {
            if !measures.contains(&figure.measure) {
                measures.push(figure.measure);
            }
        }
        measures
    }

    /// One row per subject, one column per measure.
    fn rows(&self) -> Vec<Vec<String>> {
        let measures = self.measures();
        let mut rows: Vec<Vec<String>> = Vec::new();
        for figure in &self.figures {
            let column = measures.iter().position(|known| *known == figure.measure);
            let row = rows.iter().position(|row| row[0] == figure.subject);
            let row = row.unwrap_or_else(|| {
                let mut new = vec![String::new(); measures.len() + 1];
                new[0] = figure.subject.clone();
                rows.push(new);
                rows.len() - 1
            });
            if let Some(column) = column {
                rows[row][column + 1] = shown(figure.value);
            }
        }
        rows
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        let mut header = vec![String::new()];
        header.extend(self.measures().into_iter().map(str::to_owned));
        let rows = self.rows();
        let width = |column: usize| {
            std::iter::once(&header)
                .chain(&rows)
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        for row in std::iter::once(&header).chain(&rows) {
            let mut line = format!("  {:<1$}", row[0], width(0));
            for (column, cell) in row.iter().enumerate().skip(1) {
                line.push_str(&format!("  {cell:>0$}", width(column)));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        for comparison in &self.comparisons {
            writeln!(f, "  {comparison}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what, value, unit, ..
        } = self;
        write!(f, "{what}: {}{unit}", shown(*value))?;
        let (sign, bound) = match self.target {
            Some(Target::AtMost(bound)) => ('≤', bound),
            Some(Target::AtLeast(bound)) => ('≥', bound),
            None => return Ok(()),
        };
        let met = if self.met == Some(true) {
            "met"
        } else {
            "missed"
        };
        write!(f, "  (target {sign} {bound}{unit}: {met})")
    }
}

impl Target {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// Three significant digits are more than a benchmark can promise.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("speed", "calls in turns");
        report.figure("node", "p50 µs", 123.4);
        report.figure("node", "calls/s", 8000.0);
        report.figure("floor", "p50 µs", 100.0);
        report.ratio("p50 against the floor", 1.234, Some(Target::AtMost(1.25)));
        report.compare("memory", 20.5, " MB", Some(Target::AtMost(15.0)));
        report
    }

    #[test]
    fn the_table_has_a_row_per_subject_and_shows_which_targets_are_met() {
        let expected = "\
speed: calls in turns
         p50 µs  calls/s
  node      123     8000
  floor     100
  p50 against the floor: 1.23×  (target ≤ 1.25×: met)
  memory: 20.5 MB  (target ≤ 15 MB: missed)
";
        assert_eq!(report().to_string(), expected);
    }

    #[test]
    fn a_target_from_below_is_met_from_above() {
        assert!(Target::AtLeast(0.8).is_met_by(0.9));
        assert!(!Target::AtLeast(0.8).is_met_by(0.7));
    }

    #[test]
    fn a_value_that_is_not_a_number_meets_no_target() {
        assert!(!Target::AtMost(1.0).is_met_by(f64::NAN));
        assert!(!Target::AtLeast(1.0).is_met_by(f64::NAN));
    }

    #[test]
    fn the_file_holds_figures_and_met_targets() {
        let folder = tempfile::tempdir().unwrap();
        let path = report().keep(folder.path(), true).unwrap();
        assert!(path.ends_with("speed.json"));
        let kept: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(kept["quick"], true);
        assert_eq!(kept["figures"][2]["subject"], "floor");
        assert_eq!(kept["comparisons"][0]["target"]["at_most"], 1.25);
        assert_eq!(kept["comparisons"][1]["met"], false);
    }
}
