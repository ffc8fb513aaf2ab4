"""The modules of a small C library: what each is called, what it includes, its code and the checks it must pass."""

from __future__ import annotations

from typing import NamedTuple


class Module(NamedTuple):
    """One module: a header with a declaration, a source file with its definition, and a file of checks."""

    says: str
    declares: str
    code: str
    checks: tuple[str, ...]
    includes: str = ""


MODULES = {
    "gcd": Module(
        "The greatest common divisor.",
        "unsigned long tally_gcd(unsigned long a, unsigned long b)",
        "while (b) {\n\t\tunsigned long rest = a % b;\n\t\ta = b;\n\t\tb = rest;\n\t}\n\treturn a;",
        ("tally_gcd(12, 18) == 6", "tally_gcd(7, 0) == 7", "tally_gcd(35, 64) == 1"),
    ),
    "lcm": Module(
        "The least common multiple; 0 when one of the two is 0.",
        "unsigned long tally_lcm(unsigned long a, unsigned long b)",
        "unsigned long common = tally_gcd(a, b);\n\treturn common ? a / common * b : 0;",
        ("tally_lcm(4, 6) == 12", "tally_lcm(0, 9) == 0"),
        "gcd",
    ),
    "root": Module(
        "The whole part of a square root.",
        "unsigned long tally_root(unsigned long n)",
        "unsigned long low = 0, high = n / 2 + 1;\n\twhile (low < high) {\n\t\tunsigned long middle = low + (high - low + 1) / 2;\n"
        "\t\tif (middle <= n / middle)\n\t\t\tlow = middle;\n\t\telse\n\t\t\thigh = middle - 1;\n\t}\n\treturn low;",
        ("tally_root(0) == 0", "tally_root(15) == 3", "tally_root(16) == 4"),
    ),
    "prime": Module(
        "Whether a number is prime.",
        "int tally_prime(unsigned long n)",
        "for (unsigned long d = 2; d <= tally_root(n); d++)\n\t\tif (n % d == 0)\n\t\t\treturn 0;\n\treturn n > 1;",
        ("tally_prime(2)", "tally_prime(97)", "!tally_prime(91)", "!tally_prime(1)"),
        "root",
    ),
    "power": Module(
        "A power, modulo m.",
        "unsigned long tally_power(unsigned long b, unsigned long e, unsigned long m)",
        "unsigned long out = 1 % m;\n\tfor (b %= m; e; e >>= 1, b = b * b % m)\n\t\tif (e & 1)\n\t\t\tout = out * b % m;\n\treturn out;",
        ("tally_power(2, 10, 1000) == 24", "tally_power(5, 0, 7) == 1"),
    ),
    "bits": Module(
        "How many bits are set.",
        "int tally_bits(unsigned long n)",
        "int count = 0;\n\tfor (; n; n &= n - 1)\n\t\tcount++;\n\treturn count;",
        ("tally_bits(0) == 0", "tally_bits(255) == 8"),
    ),
    "steps": Module(
        "How many steps the 3n + 1 rule takes to reach 1.",
        "int tally_steps(unsigned long n)",
        "int count = 0;\n\tfor (; n > 1; count++)\n\t\tn = n % 2 ? 3 * n + 1 : n / 2;\n\treturn count;",
        ("tally_steps(1) == 0", "tally_steps(27) == 111"),
    ),
    "fnv": Module(
        "The FNV-1a hash of a text, 32 bits.",
        "unsigned tally_fnv(const char *text)",
        "unsigned hash = 2166136261u;\n\tfor (; *text; text++)\n\t\thash = (hash ^ (unsigned char)*text) * 16777619u;\n\treturn hash;",
        ('tally_fnv("") == 2166136261u', 'tally_fnv("a") == 0xe40c292cu'),
    ),
    "crc": Module(
        "The CRC-32 of a text.",
        "unsigned tally_crc(const char *text)",
        "unsigned crc = ~0u;\n\tfor (; *text; text++) {\n\t\tcrc ^= (unsigned char)*text;\n\t\tfor (int bit = 0; bit < 8; bit++)\n"
        "\t\t\tcrc = crc & 1 ? crc >> 1 ^ CRC_POLYNOMIAL : crc >> 1;\n\t}\n\treturn ~crc;",
        ('tally_crc("123456789") == 0xcbf43926u', 'tally_crc("") == 0'),
    ),
    "adler": Module(
        "The Adler-32 sum of a text.",
        "unsigned tally_adler(const char *text)",
        "unsigned a = 1, b = 0;\n\tfor (; *text; text++) {\n\t\ta = (a + (unsigned char)*text) % 65521u;\n\t\tb = (b + a) % 65521u;\n\t}\n"
        "\treturn b << 16 | a;",
        ('tally_adler("Wikipedia") == 0x11e60398u',),
    ),
    "distance": Module(
        "How many letters must be set, added or taken away to make one text the other; texts of up to 63 letters.",
        "int tally_distance(const char *a, const char *b)",
        "int row[64], n = (int)strlen(b);\n\tfor (int j = 0; j <= n; j++)\n\t\trow[j] = j;\n\tfor (int i = 1; *a; a++, i++) {\n"
        "\t\tint corner = row[0]++;\n\t\tfor (int j = 1; j <= n; j++) {\n\t\t\tint best = corner + (*a != b[j - 1]);\n"
        "\t\t\tif (row[j] + 1 < best)\n\t\t\t\tbest = row[j] + 1;\n\t\t\tif (row[j - 1] + 1 < best)\n\t\t\t\tbest = row[j - 1] + 1;\n"
        "\t\t\tcorner = row[j];\n\t\t\trow[j] = best;\n\t\t}\n\t}\n\treturn row[n];",
        ('tally_distance("kitten", "sitting") == 3', 'tally_distance("", "abc") == 3'),
    ),
    "roman": Module(
        "A number in Roman digits, added to `out`.",
        "char *tally_roman(unsigned n, char *out)",
        'static const unsigned value[] = {1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1};\n'
        '\tstatic const char *const digit[] = {"M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"};\n'
        "\t*out = 0;\n\tfor (int i = 0; i < 13; i++)\n\t\tfor (; n >= value[i]; n -= value[i])\n\t\t\tstrcat(out, digit[i]);\n\treturn out;",
        ('!strcmp(tally_roman(1994, (char[32]){0}), "MCMXCIV")', '!strcmp(tally_roman(8, (char[32]){0}), "VIII")'),
    ),
    "reverse": Module(
        "A text turned round, in place.",
        "char *tally_reverse(char *text)",
        "for (size_t i = 0, j = strlen(text); i + 1 < j; i++) {\n\t\tchar letter = text[i];\n\t\ttext[i] = text[--j];\n\t\ttext[j] = letter;\n"
        "\t}\n\treturn text;",
        ('!strcmp(tally_reverse((char[]){"abc"}), "cba")', '!strcmp(tally_reverse((char[]){""}), "")'),
    ),
    "palindrome": Module(
        "Whether a text of up to 255 letters reads the same from both ends.",
        "int tally_palindrome(const char *text)",
        'char turned[256];\n\tsnprintf(turned, sizeof turned, "%s", text);\n\treturn !strcmp(tally_reverse(turned), text);',
        ('tally_palindrome("level")', '!tally_palindrome("lever")'),
        "reverse",
    ),
    "words": Module(
        "How many words a text has.",
        "int tally_words(const char *text)",
        "int count = 0, inside = 0;\n\tfor (; *text; text++) {\n\t\tint letter = !isspace((unsigned char)*text);\n\t\tcount += letter && !inside;\n"
        "\t\tinside = letter;\n\t}\n\treturn count;",
        ('tally_words("") == 0', 'tally_words(" two  words ") == 2'),
    ),
    "runs": Module(
        "A text with each run of letters as its length and the letter, added to `out`.",
        "char *tally_runs(const char *text, char *out)",
        'char *at = out;\n\t*at = 0;\n\twhile (*text) {\n\t\tint n = 1;\n\t\twhile (text[n] == *text)\n\t\t\tn++;\n'
        '\t\tat += sprintf(at, "%d%c", n, *text);\n\t\ttext += n;\n\t}\n\treturn out;',
        ('!strcmp(tally_runs("aaab", (char[32]){0}), "3a1b")', '!strcmp(tally_runs("", (char[32]){0}), "")'),
    ),
    "luhn": Module(
        "Whether the last digit of a number checks the others by Luhn's rule.",
        "int tally_luhn(const char *digits)",
        "int sum = 0, n = (int)strlen(digits);\n\tfor (int i = 0; i < n; i++) {\n\t\tint d = digits[n - 1 - i] - '0';\n"
        "\t\tsum += i % 2 ? d * 2 - (d > 4 ? 9 : 0) : d;\n\t}\n\treturn n > 0 && sum % 10 == 0;",
        ('tally_luhn("79927398713")', '!tally_luhn("79927398710")'),
    ),
}  # fmt: skip
