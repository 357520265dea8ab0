//! One row of the table, as people and programs see it.

use serde::Serialize;

/// What ours is compared with.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// The least that the hardware could take.
    Floor(f64),
    /// Another file system.
    Peer(f64),
    /// What the project asks of itself.
    Limit(f64),
}

impl Against {
    /// The figure.
    pub fn value(self) -> f64 {
        match self {
            Against::Floor(value) | Against::Peer(value) | Against::Limit(value) => value,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Against::Floor(_) => "floor",
            Against::Peer(_) => "peer",
            Against::Limit(_) => "limit",
        }
    }
}

/// How far apart the rounds' ratios were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Lowest.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// Highest.
    pub max: f64,
}

/// What was measured at one fill of the pool.
#[derive(Clone, Debug, Serialize)]
pub struct Fill {
    /// How full, per cent.
    pub full_percent: u32,
    /// Caller's time, ns per operation.
    pub caller_ns: f64,
    /// CPU time of the background (checkpoints), ns per operation.
    pub background_ns: f64,
    /// The floor, ns per operation.
    pub floor_ns: f64,
    /// Floor by caller and background together.
    pub ratio: f64,
    /// Floor by the caller's time alone.
    pub caller_ratio: f64,
    /// The floor's CPU time by ours, all threads: no stolen time in it.
    pub cpu_ratio: f64,
    /// The ratios of the rounds.
    pub spread: Spread,
    /// How often the log wrapped.
    pub log_laps: f64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Bytes that checkpoints wrote, per operation.
    pub checkpoint_bytes: f64,
    /// Bytes of log, per operation.
    pub log_bytes: f64,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Our figure.
    pub ours: f64,
    /// What it is compared with.
    #[serde(flatten)]
    pub against: Against,
    /// Unit of both.
    pub unit: &'static str,
    /// Above 1: ours is better.
    pub ratio: f64,
    /// The ratio that the project asks for.
    pub target: f64,
    /// Durability domain of ours.
    pub domain: String,
    /// What ours lay on.
    pub medium: String,
    /// The ratios of the rounds.
    pub spread: Spread,
    /// The figures behind it, where the fill of the pool matters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fills: Vec<Fill>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Not measured: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Row {
    /// A row that compares medians.
    pub fn new(name: &'static str, unit: &'static str, ours: f64, against: Against) -> Row {
        Row {
            name,
            ours,
            against,
            unit,
            ratio: if ours > 0.0 { against.value() / ours } else { 0.0 },
            target: 1.0,
            domain: String::from("process"),
            medium: String::new(),
            spread: Spread::default(),
            fills: Vec::new(),
            notes: Vec::new(),
            skipped: None,
        }
    }

    /// A row that cannot be measured here.
    pub fn skipped(name: &'static str, why: &str) -> Row {
        let mut row = Row::new(name, "", 0.0, Against::Floor(0.0));
        row.skipped = Some(why.to_owned());
        row
    }

    /// With the ratio, and the ratios of its rounds.
    pub fn ratio(mut self, ratio: f64, spread: Spread) -> Row {
        self.ratio = ratio;
        self.spread = spread;
        self
    }

    /// With the ratio that is asked for.
    pub fn target(mut self, target: f64) -> Row {
        self.target = target;
        self
    }

    /// With what it lay on.
    pub fn on(mut self, domain: &str, medium: &str) -> Row {
        self.domain = domain.to_owned();
        self.medium = medium.to_owned();
        self
    }

    /// With one more thing to say.
    pub fn note(mut self, note: String) -> Row {
        self.notes.push(note);
        self
    }
}

/// The rows for people; one block of lines each.
pub fn table(rows: &[Row]) -> String {
    rows.iter().map(lines).collect()
}

fn lines(row: &Row) -> String {
    if let Some(why) = &row.skipped {
        return format!("{:<22} skipped: {why}\n", row.name);
    }
    let reached = if row.ratio >= row.target { "ok" } else { "MISSED" };
    let mut text = format!(
        "{:<22} ours {:>10} {:>5} {:>10} {:<14} ratio {:>5.2} (asked {:.2}: {reached}) \
         rounds {:.2} {:.2} {:.2}  [{}, {}]\n",
        row.name,
        figure(row.ours),
        row.against.word(),
        figure(row.against.value()),
        row.unit,
        row.ratio,
        row.target,
        row.spread.min,
        row.spread.median,
        row.spread.max,
        row.domain,
        row.medium,
    );
    for fill in &row.fills {
        text.push_str(&fill_line(fill));
    }
    for note in &row.notes {
        text.push_str(&format!("    {note}\n"));
    }
    text
}

fn fill_line(fill: &Fill) -> String {
    format!(
        "    {} % full: caller {} + background {} ns, floor {} ns; ratio {:.2} ({:.2} to {:.2}), \
         caller alone {:.2}, CPU time {:.2}; log {} B/op, {:.1} laps; \
         {} checkpoints, {} B/op\n",
        fill.full_percent,
        figure(fill.caller_ns),
        figure(fill.background_ns),
        figure(fill.floor_ns),
        fill.ratio,
        fill.spread.min,
        fill.spread.max,
        fill.caller_ratio,
        fill.cpu_ratio,
        figure(fill.log_bytes),
        fill.log_laps,
        fill.checkpoints,
        figure(fill.checkpoint_bytes),
    )
}

fn figure(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
