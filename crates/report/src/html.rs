//! The page around the charts. It is well-formed XML too, so that tests and tools
//! can read it with a parser that forgives nothing.

use super::palette::chart_css;
use super::svg::{WIDE, WIDTH, escape};
use super::{Block, Cell, Content, Figure, Report, Table, Verdict, number};
use anabranch_stats::MeanEstimate;

pub(super) fn page(report: &Report) -> String {
    let title = escape(&report.title);
    let meta: String = report.meta.iter().map(|(key, value)| entry(key, value)).collect();
    let meta = if meta.is_empty() { meta } else { format!("<dl>\n{meta}</dl>\n") };
    let mut figures = 0;
    let body: String = report.blocks.iter().map(|part| block(part, &mut figures)).collect();
    let is_picture = |figure: &Figure| matches!(figure.content, Content::Picture { .. });
    let has_picture =
        report.blocks.iter().any(|block| matches!(block, Block::Figures(figures) if figures.iter().any(is_picture)));
    // The policy is a promise that the page loads nothing, and the browser keeps it.
    format!(
        concat!(
            "<!DOCTYPE html>\n",
            "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
            "<meta http-equiv=\"Content-Security-Policy\" ",
            "content=\"default-src 'none'; style-src 'unsafe-inline'{img_src}\"/>\n",
            "<meta name=\"color-scheme\" content=\"light dark\"/>\n",
            "<title>{title}</title>\n<style>\n{page_css}{chart_css}</style>\n</head>\n",
            "<body>\n<main>\n<h1>{title}</h1>\n{meta}{body}</main>\n</body>\n</html>\n"
        ),
        title = title,
        img_src = if has_picture { "; img-src data:" } else { "" },
        page_css = include_str!("page.css"),
        chart_css = chart_css(),
        meta = meta,
        body = body
    )
}

fn entry(key: &str, value: &str) -> String {
    format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(key), escape(value))
}

fn block(block: &Block, figures: &mut usize) -> String {
    match block {
        Block::Section(title) => format!("<h2>{}</h2>\n", escape(title)),
        Block::Paragraph(text) => format!("<p>{}</p>\n", escape(text)),
        // A listing can be scrolled, and what can be scrolled must be reachable by keys.
        Block::Listing { caption, text } => format!(
            "<figure class=\"listing\">\n<figcaption>{}</figcaption>\n\
             <pre tabindex=\"0\">{}</pre>\n</figure>\n",
            escape(caption),
            escape(text)
        ),
        Block::Table(content) => table(content),
        Block::Folded { summary, table: content } => {
            format!("<details>\n<summary>{}</summary>\n{}</details>\n", escape(summary), table(content))
        }
        Block::Figures(content) => {
            let (class, width) = if content.len() > 1 { ("row", WIDTH) } else { ("single", WIDE) };
            let parts: String = content
                .iter()
                .map(|part| {
                    *figures += 1;
                    figure(part, *figures, width)
                })
                .collect();
            format!("<div class=\"{class}\">\n{parts}</div>\n")
        }
    }
}

fn figure(figure: &Figure, index: usize, width: f64) -> String {
    let content = match &figure.content {
        // What can be scrolled must be reachable by keys.
        Content::Chart(chart) if width > WIDTH => {
            format!("<div class=\"wide\" tabindex=\"0\">\n{}</div>\n", chart.inline(&figure.caption, width))
        }
        Content::Chart(chart) => chart.inline(&figure.caption, width),
        Content::Picture { words, png } => {
            // Nothing but Base64 gets into the address.
            let png: String =
                png.chars().filter(|letter| letter.is_ascii_alphanumeric() || "+/=".contains(*letter)).collect();
            format!("<img alt=\"{}\" src=\"data:image/png;base64,{png}\"/>\n", escape(words))
        }
        Content::Quote { text, source } => {
            format!("<blockquote><p>{}</p><footer>{}</footer></blockquote>\n", escape(text), escape(source))
        }
    };
    format!(
        "<figure>\n{content}<figcaption><b>Figure {index}.</b> {}</figcaption>\n</figure>\n",
        escape(&figure.caption)
    )
}

fn table(table: &Table) -> String {
    let numeric: Vec<bool> =
        (0..table.headers.len()).map(|column| table.rows.iter().any(|row| is_numeric(&row[column]))).collect();
    // A note is a sentence, and gets the width of one.
    let notes: Vec<bool> = (0..table.headers.len())
        .map(|column| table.rows.iter().any(|row| matches!(&row[column], Cell::Text(text) if text.len() > NOTE)))
        .collect();
    let class = |column: usize| match (numeric[column], notes[column]) {
        (true, _) => " class=\"n\"",
        (false, true) => " class=\"note\"",
        (false, false) => "",
    };
    let headers: String = table
        .headers
        .iter()
        .enumerate()
        .map(|(i, header)| match header.as_str() {
            // Readers aloud would announce a header of nothing.
            "" => "<td></td>".to_owned(),
            header => format!("<th scope=\"col\"{}>{}</th>", class(i), escape(header)),
        })
        .collect();
    let rows: String = table
        .rows
        .iter()
        .map(|row| {
            let cells: String = row.iter().enumerate().map(|(i, c)| cell(c, class(i))).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"table\" tabindex=\"0\">\n<table>\n<caption><span>{}</span></caption>\n\
         <thead><tr>{headers}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n",
        escape(&table.caption)
    )
}

/// A cell with more bytes than this is a sentence.
const NOTE: usize = 40;

fn is_numeric(cell: &Cell) -> bool {
    !matches!(cell, Cell::Text(_) | Cell::Verdict(_))
}

fn cell(cell: &Cell, class: &str) -> String {
    let content = match cell {
        Cell::Text(text) => escape(text),
        Cell::Number { value, digits } => number::fixed(*value, *digits),
        Cell::Interval { mean, half_width } => number::interval(*mean, *half_width),
        Cell::Estimate(estimate) => self::estimate(estimate),
        Cell::Verdict(verdict) => {
            // A sign and a word: colour alone does not reach everyone, nor every printer.
            let (class, text) = match verdict {
                Verdict::Agrees => ("agrees", "\u{2713} agrees"),
                Verdict::Disagrees => ("disagrees", "\u{2717} disagrees"),
                Verdict::Open => ("open", "? open"),
                Verdict::NotJudged => ("none", "\u{2013}"),
            };
            format!("<span class=\"verdict {class}\">{text}</span>")
        }
    };
    format!("<td{class}>{content}</td>")
}

fn estimate(estimate: &MeanEstimate) -> String {
    match estimate {
        MeanEstimate::Interval(interval) => number::interval(interval.mean, interval.half_width),
        MeanEstimate::Correlated { interval, lag1, band } => format!(
            "{} <small>correlated batches ({}, band ±{}): interval too {}</small>",
            number::interval(interval.mean, interval.half_width),
            number::fixed(*lag1, 2),
            number::fixed(*band, 2),
            if *lag1 > 0.0 { "narrow" } else { "wide" }
        ),
        MeanEstimate::TooShort { mean, batches, needed } => format!(
            "{} <small>too short for an interval: {batches} of {needed} batches</small>",
            mean.map_or(number::NO_NUMBER.to_owned(), |mean| number::compact(mean, 4))
        ),
        MeanEstimate::NotFinite { batch } => {
            format!("{} <small>batch {batch} is not a number</small>", number::NO_NUMBER)
        }
    }
}
