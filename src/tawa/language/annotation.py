"""`constexpr` as users name it; the stub beside this file tells type checkers what it accepts."""

from tawa.language.constant import constexpr as constexpr
