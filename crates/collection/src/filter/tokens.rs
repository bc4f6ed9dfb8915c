//! Splits the text of a filter into words, literals and signs.

use super::error::FilterError;
use super::expression::{Comparison, Literal, begins_word, continues_word};
use std::fmt;

/// A word, a literal or a sign.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    /// A keyword, a function or the name of a column.
    Word(&'a str),
    /// A name in double quotes or backticks.
    Name(String),
    Text(String),
    Number(Literal),
    Compare(Comparison),
    Open,
    Close,
    Comma,
    And,
    Or,
    Not,
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) => write!(formatter, "`{word}`"),
            Token::Name(name) => write!(formatter, "the column {name:?}"),
            Token::Text(text) if text.chars().count() > 20 => formatter.write_str("a string"),
            Token::Text(text) => write!(formatter, "the string '{text}'"),
            Token::Number(number) => write!(formatter, "the number {number}"),
            Token::Compare(comparison) => write!(formatter, "`{comparison}`"),
            Token::Open => formatter.write_str("`(`"),
            Token::Close => formatter.write_str("`)`"),
            Token::Comma => formatter.write_str("`,`"),
            Token::And => formatter.write_str("`and`"),
            Token::Or => formatter.write_str("`or`"),
            Token::Not => formatter.write_str("`not`"),
            Token::End => formatter.write_str("the end"),
        }
    }
}

/// Reads tokens from a text.
pub(super) struct Tokens<'a> {
    text: &'a str,
    /// Number of bytes read.
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Tokens<'a> {
        Tokens { text, at: 0 }
    }

    /// Returns the next token, and the byte at which it begins.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'a>), FilterError> {
        let rest = self.text.get(self.at..).unwrap_or("");
        let blank_bytes = rest.len() - rest.trim_start().len();
        let (begin, rest) = (self.at + blank_bytes, &rest[blank_bytes..]);
        let Some(first) = rest.chars().next() else {
            self.at = self.text.len();
            return Ok((begin, Token::End));
        };
        let signed = |sign: char| {
            rest.strip_prefix(sign)
                .is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        };
        let (token, bytes) = if let Some((sign, token)) = sign(rest) {
            (token, sign.len())
        } else if begins_word(first) {
            let end = rest.find(|c| !continues_word(c)).unwrap_or(rest.len());
            (word(&rest[..end]), end)
        } else if matches!(first, '\'' | '"' | '`') {
            let (content, end) = self.quoted(begin, rest, first)?;
            (if first == '\'' { Token::Text(content) } else { Token::Name(content) }, end)
        } else if first.is_ascii_digit() || first == '.' || signed('-') || signed('+') {
            self.number(begin, rest)?
        } else {
            return Err(FilterError::at(self.text, begin, format!("{first:?} has no meaning here")));
        };
        self.at = begin + bytes;
        Ok((begin, token))
    }

    /// Returns the content between quotes, and the number of bytes including both quotes. A doubled quote
    /// stands for one.
    fn quoted(&self, begin: usize, rest: &str, quote: char) -> Result<(String, usize), FilterError> {
        let mut content = String::new();
        let mut at = 1;
        while let Some(length) = rest[at..].find(quote) {
            content.push_str(&rest[at..at + length]);
            at += length + 1;
            if !rest[at..].starts_with(quote) {
                return Ok((content, at));
            }
            content.push(quote);
            at += 1;
        }
        let token_kind = if quote == '\'' { "string" } else { "name" };
        Err(FilterError::at(
            self.text,
            begin,
            format!("the {token_kind} that begins here does not end; it needs a {quote}"),
        ))
    }

    fn number(&self, begin: usize, rest: &str) -> Result<(Token<'a>, usize), FilterError> {
        let mut end = 0;
        let mut before = ' ';
        for character in rest.chars() {
            let sign = matches!(character, '-' | '+') && (end == 0 || matches!(before, 'e' | 'E'));
            if !sign && !continues_word(character) {
                break;
            }
            end += character.len_utf8();
            before = character;
        }
        let digits = &rest[..end];
        // The parser of floats also accepts words such as "infinity".
        let only_digits =
            digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E'));
        if !only_digits || digits.parse::<f64>().is_err() {
            return Err(FilterError::at(self.text, begin, "this is no number"));
        }
        match Literal::number(digits) {
            Some(number) => Ok((Token::Number(number), end)),
            None => {
                Err(FilterError::at(self.text, begin, "the number is larger than any that a column can hold"))
            }
        }
    }
}

fn sign<'a>(rest: &str) -> Option<(&'static str, Token<'a>)> {
    // Longer signs come first.
    let signs = [
        ("==", Token::Compare(Comparison::Equal)),
        ("!=", Token::Compare(Comparison::NotEqual)),
        ("<>", Token::Compare(Comparison::NotEqual)),
        ("<=", Token::Compare(Comparison::LessOrEqual)),
        (">=", Token::Compare(Comparison::GreaterOrEqual)),
        ("&&", Token::And),
        ("||", Token::Or),
        ("=", Token::Compare(Comparison::Equal)),
        ("<", Token::Compare(Comparison::Less)),
        (">", Token::Compare(Comparison::Greater)),
        ("!", Token::Not),
        ("(", Token::Open),
        (")", Token::Close),
        (",", Token::Comma),
    ];
    signs.into_iter().find(|(sign, _)| rest.starts_with(sign))
}

fn word(word: &str) -> Token<'_> {
    let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
    match word {
        _ if is("and") => Token::And,
        _ if is("or") => Token::Or,
        _ if is("not") => Token::Not,
        _ => Token::Word(word),
    }
}
