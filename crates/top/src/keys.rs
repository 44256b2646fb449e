//! Key bindings.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::screen::Sort;

/// An action bound to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Suspend,
    Redraw,
    Help,
    Open,
    Back,
    Move(Motion),
    NextNode,
    PreviousNode,
    NextPane,
    PreviousPane,
    Sort(Sort),
    EditFilter,
    Type(char),
    Erase,
    EraseAll,
    EndFilter,
    ToggleLogs,
    NextLog,
    PreviousLog,
}

/// A movement in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Selects whether keys are commands or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Commands,
    Filter,
}

pub fn action(key: KeyEvent, mode: Mode) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('l') => Some(Action::Redraw),
            KeyCode::Char('u') if mode == Mode::Filter => Some(Action::EraseAll),
            _ => None,
        };
    }
    let motion = match key.code {
        KeyCode::Up => Some(Motion::Up),
        KeyCode::Down => Some(Motion::Down),
        KeyCode::PageUp => Some(Motion::PageUp),
        KeyCode::PageDown => Some(Motion::PageDown),
        KeyCode::Home => Some(Motion::Home),
        KeyCode::End => Some(Motion::End),
        _ => None,
    };
    if let Some(motion) = motion {
        return Some(Action::Move(motion));
    }
    match mode {
        Mode::Filter => typed(key.code),
        Mode::Commands => command(key.code),
    }
}

fn typed(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Enter => Some(Action::EndFilter),
        KeyCode::Esc => Some(Action::Back),
        KeyCode::Backspace => Some(Action::Erase),
        KeyCode::Char(c) => Some(Action::Type(c)),
        _ => None,
    }
}

fn command(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Enter => Action::Open,
        KeyCode::Esc => Action::Back,
        KeyCode::Tab => Action::NextPane,
        KeyCode::BackTab => Action::PreviousPane,
        KeyCode::Left => Action::PreviousNode,
        KeyCode::Right => Action::NextNode,
        KeyCode::Char(c) => match c {
            'q' => Action::Quit,
            '?' | 'h' => Action::Help,
            'j' => Action::Move(Motion::Down),
            'k' => Action::Move(Motion::Up),
            'g' => Action::Move(Motion::Home),
            'G' => Action::Move(Motion::End),
            'c' => Action::Sort(Sort::Cpu),
            'm' => Action::Sort(Sort::Memory),
            'p' => Action::Sort(Sort::Pid),
            'n' => Action::Sort(Sort::Name),
            '/' => Action::EditFilter,
            'l' => Action::ToggleLogs,
            '[' => Action::PreviousLog,
            ']' => Action::NextLog,
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, mode: Mode) -> Option<Action> {
        action(KeyEvent::new(code, KeyModifiers::NONE), mode)
    }

    #[test]
    fn letters_are_commands_or_text() {
        let q = KeyCode::Char('q');
        assert_eq!(press(q, Mode::Commands), Some(Action::Quit));
        assert_eq!(press(q, Mode::Filter), Some(Action::Type('q')));
        assert_eq!(press(KeyCode::Char('x'), Mode::Commands), None);
    }

    #[test]
    fn ctrl_c_quits_in_every_mode() {
        for mode in [Mode::Commands, Mode::Filter] {
            let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(action(interrupt, mode), Some(Action::Quit));
        }
    }

    #[test]
    fn a_key_release_has_no_action() {
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(action(key, Mode::Commands), None);
    }
}
